//! PutObject, and POST forms, which `s3s` turns into it.

use std::sync::Arc;

use forebay_cache::{Attributes, PutObject};
use forebay_types::{Checksum, Tags};
use http::HeaderValue;
use http::header::ETAG;
use s3s::dto::{ETag, PutObjectInput, PutObjectOutput};
use s3s::{S3Request, S3Response, S3Result};

use super::{ErrorMapper, Operations, not_implemented, put_conditions, refuse_unsupported, system_headers};
use crate::checksums::{self, given_checksums};
use crate::context::{RequestContext, is_signed, operation, take_trailing};
use crate::incoming::{Announced, incoming};
use crate::object_url::location;
use crate::s3s_fixes::answer;
use crate::s3s_types;

impl Operations {
    pub(super) async fn write_object(
        &self,
        mut request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let mapper = ErrorMapper::of(&request, "PutObject");
        let is_form = operation(&request) == "PostObject";
        let location = if is_form { location(&request, Some(&request.input.key)) } else { None };
        let (trailing, signed) = (take_trailing(&mut request), is_signed(&request));
        let input = &mut request.input;
        refuse_unsupported!(input, request.headers);
        if input.write_offset_bytes.is_some() {
            return Err(not_implemented("Appending to an object"));
        }
        let path = s3s_types::path(&request.input.bucket, &request.input.key)?;
        let conditions = put_conditions(&request, &path)?;
        let checksums = match is_form {
            true => given_in_form(&request)?,
            false => checksums::given_in_headers(&request.headers)?,
        };
        let tags = tags(&request)?;
        let input = &mut request.input;
        let announced = Announced {
            content_length: input.content_length,
            content_md5: input.content_md5.take(),
            checksums,
            trailing,
            signed,
        };
        let put = PutObject {
            path,
            attributes: s3s_types::check_attributes(Attributes {
                headers: system_headers!(input, request.extensions)?,
                user: s3s_types::user_metadata(input.metadata.take())?,
                tags,
            })?,
            conditions,
            body: incoming(input.body.take(), &request.headers, announced)?,
        };
        let written = self.cache.put(put).await.map_err(|error| mapper.answer(error))?;
        let output = PutObjectOutput { e_tag: Some(s3s_types::etag(&written.etag)), ..PutObjectOutput::default() };
        let mut response = if is_form { answer_form(output, location) } else { S3Response::new(output) };
        checksums::set_checksum_and_type_headers(&mut response.headers, &written.checksums, 0);
        Ok(response)
    }
}

/// The checksums in the fields of a form, also in those that `s3s` has dropped.
fn given_in_form(request: &S3Request<PutObjectInput>) -> S3Result<Vec<Checksum>> {
    let mut checksums = given_checksums!(request.input)?;
    let dropped = request.extensions.get::<Arc<RequestContext>>().and_then(|context| context.form_checksums.get());
    for (algorithm, text) in dropped.into_iter().flatten() {
        checksums.extend(checksums::given_checksum(*algorithm, Some(text))?);
    }
    Ok(checksums)
}

/// The tags in the header, or in the document of a form.
fn tags(request: &S3Request<PutObjectInput>) -> S3Result<Tags> {
    let context = request.extensions.get::<Arc<RequestContext>>();
    match context.and_then(|context| context.form_tags.get()) {
        Some(tags) => s3s_types::tags(tags.clone()),
        None => s3s_types::tags_of_header(request.input.tagging.as_deref()),
    }
}

/// The answer to a form. `s3s` writes it and leaves out what is set here: the quotes of the tag, and where the object
/// is, which must not take the place of a redirect.
fn answer_form(mut output: PutObjectOutput, location: Option<String>) -> S3Response<PutObjectOutput> {
    let quoted = output.e_tag.as_ref().map(|etag| format!("\"{}\"", etag.value()));
    output.e_tag = quoted.clone().map(ETag::Strong);
    let mut response = S3Response::new(output);
    for (name, value) in [(ETAG, quoted), (answer::FORM_LOCATION, location)] {
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            response.headers.insert(name, value);
        }
    }
    response
}
