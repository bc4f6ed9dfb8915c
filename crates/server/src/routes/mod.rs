//! The operations, by their addresses. The description of the API is generated from them.

mod caller;
mod changes;
mod collections;
mod console;
mod indexes;
mod insight;
mod long_work;
mod rows;
mod sample_map;
mod search;
mod snapshots;
mod status;
mod to_writer;
mod wire;

use crate::access::authenticate;
use crate::failure::Refusal;
use crate::observe::{count_request, trace_request};
use crate::state::Shared;
use axum::Router;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::get;
use bathyal_console::Kind;
use std::sync::Arc;
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The name of the scheme of authentication in the description.
const BEARER: &str = "bearer";

/// The description without operations.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Bathyal",
        description = "Collections of vectors with metadata, and vector indexes. Every error has the body \
                       `{\"error\": {\"kind\": ..., \"message\": ...}}`; the kinds are those of the command."
    ),
    security(("bearer" = []))
)]
struct Description;

/// Returns the operations of version 1 and their description.
fn operations() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(collections::list, collections::create))
        .routes(routes!(collections::describe, collections::remove))
        .routes(routes!(changes::add))
        .routes(routes!(changes::upsert))
        .routes(routes!(changes::update))
        .routes(routes!(changes::delete))
        .routes(routes!(rows::get))
        .routes(routes!(rows::scan))
        .routes(routes!(rows::count))
        .routes(routes!(search::search))
        .routes(routes!(snapshots::hold))
        .routes(routes!(snapshots::release))
        .routes(routes!(long_work::flush))
        .routes(routes!(long_work::compact))
        .routes(routes!(long_work::verify))
        .routes(routes!(long_work::warm))
        .routes(routes!(long_work::copy))
        .routes(routes!(long_work::calibrate))
        .routes(routes!(indexes::list))
        .routes(routes!(indexes::describe))
        .routes(routes!(indexes::search))
        .routes(routes!(indexes::range))
        .routes(routes!(indexes::get))
        .routes(routes!(indexes::stats))
        .routes(routes!(caller::me))
        .routes(routes!(caller::stats))
        .routes(routes!(insight::stats))
        .routes(routes!(insight::explain))
        .routes(routes!(insight::recall))
        .routes(routes!(insight::audit))
        .routes(routes!(insight::explain_index))
        .routes(routes!(insight::recall_index))
        .routes(routes!(insight::audit_index))
        .routes(routes!(sample_map::map))
        .routes(routes!(sample_map::map_index))
}

/// Returns the description of the API in OpenAPI 3.1.
pub fn openapi() -> Document {
    let mut document = operations().into_openapi();
    let components = document.components.get_or_insert_default();
    let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    components.add_security_scheme(BEARER, scheme);
    document
}

/// Returns everything that a server answers.
pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    let (operations, _) = operations().split_for_parts();
    let operations = operations
        .layer(from_fn_with_state(shared.clone(), to_writer::to_writer))
        .layer(from_fn_with_state(shared.clone(), authenticate));
    operations
        .route("/v1/openapi.json", get(status::description))
        .route("/health/live", get(status::live))
        .route("/health/ready", get(status::ready))
        .with_state(shared.clone())
        .merge(console::router())
        .merge(crate::s3_vectors::router(shared))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(shared.clone(), count_request))
        .layer(from_fn(trace_request))
}

async fn unknown() -> impl IntoResponse {
    Refusal::new(Kind::NotFound, "there is no such address; /v1/openapi.json describes all")
}

async fn wrong_method() -> impl IntoResponse {
    Refusal::with_status(
        StatusCode::METHOD_NOT_ALLOWED,
        Kind::InvalidArgument,
        "this address has no such method; /v1/openapi.json describes all",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_operation_is_described() {
        let document = serde_json::to_value(openapi()).unwrap();
        assert_eq!(document["openapi"], "3.1.0");
        let paths = document["paths"].as_object().unwrap();
        let operations = paths.values().flat_map(|path| path.as_object().unwrap().values());
        let described = operations.filter(|operation| {
            operation["summary"].is_string() && operation["responses"]["200"].is_object()
                || operation["responses"]["201"].is_object()
        });
        assert_eq!((paths.len(), described.count()), (35, 37));
        assert!(paths.keys().all(|path| path.starts_with("/v1/")));
        let operations = paths.values().flat_map(|path| path.as_object().unwrap().values());
        let names: BTreeSet<&str> =
            operations.filter_map(|operation| operation["operationId"].as_str()).collect();
        assert_eq!(names.len(), 37, "{names:?}");
        let listed = &document["paths"]["/v1/collections"]["get"]["parameters"];
        for parameter in listed.as_array().unwrap() {
            assert_eq!((&parameter["in"], &parameter["required"]), (&"query".into(), &false.into()));
        }
    }
}
