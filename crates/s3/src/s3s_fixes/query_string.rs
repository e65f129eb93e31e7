//! The query string of a request.

use s3s::S3Error;

use crate::s3_error::invalid_request;

/// Most parameters in a query; no S3 operation has more than 25.
const QUERY_PARAMETERS_MAX: usize = 64;

/// The query's parameters, decoded as `s3s` decodes them.
pub(crate) struct Query {
    pub(crate) parameters: Vec<(String, String)>,
}

impl Query {
    pub(crate) fn parse(query: &str) -> Result<Self, S3Error> {
        let decode = |text: &str| {
            let spaced = text.replace('+', " ");
            percent_encoding::percent_decode_str(&spaced).decode_utf8().map(|text| text.into_owned())
        };
        let parameters: Result<Vec<_>, _> = query
            .split('&')
            .filter(|parameter| !parameter.is_empty())
            .map(|parameter| {
                let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
                Ok((decode(name)?, decode(value)?))
            })
            .collect();
        let parameters =
            parameters.map_err(|_: std::str::Utf8Error| invalid_request("The query is not valid UTF-8."))?;
        if parameters.len() > QUERY_PARAMETERS_MAX {
            return Err(invalid_request("The query has too many parameters."));
        }
        for (index, (name, _)) in parameters.iter().enumerate() {
            if parameters[..index].iter().any(|(other, _)| other == name) {
                return Err(invalid_request(format!("The query parameter {name:?} was given twice.")));
            }
        }
        Ok(Self { parameters })
    }

    pub(crate) fn only(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.parameters.iter().map(|(name, _)| name.as_str())
    }

    pub(crate) fn has_signature_parameters(&self) -> bool {
        ["Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature"].iter().any(|name| {
            self.parameters.iter().any(|(given, _)| {
                given.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("X-Amz-"))
                    && given[6..].eq_ignore_ascii_case(name)
            })
        })
    }
}
