//! The routes of `/api/v1`, and their description: both from one list, so that neither can have what the other lacks.

use axum::Json;
use axum::extract::State;
use forebay_types::policy::WRITE_REPLICAS_MAX;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{OpenApi, RefOr};
use utoipa::{Modify, OpenApi as _};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::ProblemBody;
use crate::{
    Admin, cluster, configuration, content, health, jobs, objects, overview, persist, policies, session, undeliverable,
    under_stores,
};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Forebay",
        description = "The admin API of a Forebay worker. Errors are `application/problem+json`. Times that end in `Ms` are \
                       milliseconds since 1970. Parameters and fields that are not named here are refused.\n\n\
                       Requests carry the keys of a user with an admin grant for the path concerned (HTTP Basic), or the cookie \
                       of a session. With the cookie, a request that is not GET or HEAD also carries the header `x-forebay-csrf`."
    ),
    components(schemas(ProblemBody)),
    security(("keys" = []), ("session" = [])),
    modifiers(&SecuritySchemes)
)]
struct Description;

struct SecuritySchemes;

impl Modify for SecuritySchemes {
    fn modify(&self, openapi: &mut OpenApi) {
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("keys", SecurityScheme::Http(Http::new(HttpAuthScheme::Basic)));
        let cookie = ApiKey::Cookie(ApiKeyValue::new("forebay_session"));
        components.add_security_scheme("session", SecurityScheme::ApiKey(cookie));
    }
}

/// All operations of the API.
pub(crate) fn api() -> OpenApiRouter<Admin> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(describe))
        .routes(routes!(health::show_status))
        .routes(routes!(overview::show_overview))
        .routes(routes!(overview::show_overview_history))
        .routes(routes!(policies::list_policies, policies::replace_policies))
        .routes(routes!(policies::check_policies))
        .routes(routes!(policies::rule::show_rule, policies::rule::put_rule, policies::rule::delete_rule))
        .routes(routes!(policies::resolve_policy))
        .routes(routes!(policies::history::list_policy_versions))
        .routes(routes!(policies::history::show_policy_version))
        .routes(routes!(policies::history::roll_back_policies))
        .routes(routes!(persist::persist_now))
        .routes(routes!(undeliverable::list_undeliverable))
        .routes(routes!(undeliverable::keep_undeliverable))
        .routes(routes!(undeliverable::rename_undeliverable))
        .routes(routes!(undeliverable::discard_undeliverable))
        .routes(routes!(jobs::list_jobs, jobs::create_job))
        .routes(routes!(jobs::show_job))
        .routes(routes!(jobs::list_job_findings))
        .routes(routes!(jobs::cancel_job))
        .routes(routes!(objects::list_buckets))
        .routes(routes!(objects::list_objects))
        .routes(routes!(objects::show_object))
        .routes(routes!(content::read_content, content::write_content, content::delete_content))
        .routes(routes!(under_stores::list_under_stores))
        .routes(routes!(cluster::show_cluster))
        .routes(routes!(cluster::show_homes))
        .routes(routes!(cluster::drain_worker))
        .routes(routes!(cluster::remove_worker))
        .routes(routes!(configuration::list_configuration))
        .routes(routes!(configuration::list_notices))
        .routes(routes!(session::begin_session, session::show_session, session::end_session))
}

/// The description of all operations.
pub(crate) fn description() -> OpenApi {
    let mut openapi = api().into_openapi();
    let components = openapi.components.get_or_insert_default();
    for (name, property, schema) in WRITTEN {
        if let Some(RefOr::T(Schema::Object(object))) = components.schemas.get_mut(name) {
            object.properties.insert(property.to_owned(), schema().into());
        }
    }
    openapi
}

/// A type of the API, one of its fields, and what that is.
type Written = (&'static str, &'static str, fn() -> Schema);

/// Fields whose types of Rust do not tell what they may be.
const WRITTEN: [Written; 17] = [
    ("JobRequest", "path", place),
    ("JobRequest", "rateLimit", byte_size),
    ("PolicyRule", "path", rule_path),
    ("PolicyRule", "writeBackMaxSize", byte_size),
    ("PolicyRule", "readCacheMaxSize", byte_size),
    ("PolicyRule", "cacheQuota", byte_size),
    ("PolicyRule", "memoryQuota", byte_size),
    ("PolicyRule", "metadataTtl", period),
    ("PolicyRule", "listTtl", period),
    ("PolicyRule", "writeReplicas", replicas),
    ("RuleSettings", "writeBackMaxSize", byte_size),
    ("RuleSettings", "readCacheMaxSize", byte_size),
    ("RuleSettings", "cacheQuota", byte_size),
    ("RuleSettings", "memoryQuota", byte_size),
    ("RuleSettings", "metadataTtl", period),
    ("RuleSettings", "listTtl", period),
    ("RuleSettings", "writeReplicas", replicas),
];

fn text(format: &str, description: &str) -> ObjectBuilder {
    let format = SchemaFormat::Custom(format.to_owned());
    ObjectBuilder::new().schema_type(Type::String).format(Some(format)).description(Some(description))
}

fn place() -> Schema {
    text("place", "`/`, `/bucket`, or `/bucket/key/prefix`.").into()
}

fn rule_path() -> Schema {
    let about = "`/`, `/bucket`, or `/bucket/key/prefix`; matched byte by byte: `/b/log` holds for `/b/logs/1` too.";
    ObjectBuilder::new().schema_type(Type::String).pattern(Some("^/")).description(Some(about)).into()
}

/// As text with a unit, or as a number of bytes; `null` is as if it were left out.
fn byte_size() -> Schema {
    let bytes = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(BYTES_MAX));
    let item = text("byte-size", "A number and a unit: `512 B`, `64 KiB`, `1.5 GiB`, `2 TB`.");
    OneOfBuilder::new().item(item).item(bytes).item(ObjectBuilder::new().schema_type(Type::Null)).into()
}

fn period() -> Schema {
    let item = text("period", "A number and a unit: `250 ms`, `30 s`, `10 min`, `1 h`, `7 d`.");
    OneOfBuilder::new().item(item).item(ObjectBuilder::new().schema_type(Type::Null)).into()
}

fn replicas() -> Schema {
    let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(WRITE_REPLICAS_MAX));
    OneOfBuilder::new().item(number).item(ObjectBuilder::new().schema_type(Type::Null)).into()
}

/// The most bytes that a size may have as a number: what a float tells from its neighbours.
const BYTES_MAX: u64 = (1 << 53) - 1;

/// This description.
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "description", security(()),
    responses((status = 200, body = Object, description = "OpenAPI 3.1")))]
async fn describe(State(admin): State<Admin>) -> Json<OpenApi> {
    Json(admin.description().clone())
}
