//! The OpenAPI description of a service. It is generated from the routes, served with them, and
//! checked in as a golden file (A1).
//!
//! The page at `/docs` is part of the binary and loads nothing from other servers.

mod common_responses;
mod if_revision;
mod integer_bounds;
mod merge_all_of;
mod min_revision;
mod parameter_schemas;
mod query_parameters;

pub(crate) use common_responses::operations;
pub use min_revision::MIN_REVISION;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_SECURITY_POLICY;
use tower_http::set_header::SetResponseHeaderLayer;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, License, LicenseBuilder, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::{Config, SwaggerUi};

/// Parts of the description that the routes do not contain.
#[derive(Debug, Clone, Copy)]
pub struct Description {
    pub title: &'static str,
    pub text: &'static str,
}

const DOCUMENT_PATH: &str = "/v1/openapi.json";
const SECURITY_SCHEME: &str = "token";
/// Content policy of the page. It loads everything from the service itself and cannot be embedded
/// in another page.
const CONTENT_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
/// Conventions of all routes of all services, and what a client of v1 must expect (A1).
const CONVENTIONS: &str = "Within v1, routes, fields and enum values are only added. Enums in \
    answers are open: a client treats an unknown value as one that needs no action. Clients ignore \
    unknown fields of answers. A request with an unknown field is refused. Refusals are problem \
    documents (RFC 9457) with a closed list of codes.";

/// Adds the description at `/v1/openapi.json` and the page at `/docs` to the routes.
pub fn documented(router: OpenApiRouter, about: Description) -> Router {
    let (router, document) = router.split_for_parts();
    // The text is shared by all requests.
    let text = Bytes::from(to_json(&complete(document, about)));
    let serve_text = move || {
        let text = text.clone();
        async move { ([(http::header::CONTENT_TYPE, "application/json")], text) }
    };
    // The document has no name, because the base layout has no bar to choose among named documents.
    let config = Config::new([DOCUMENT_PATH])
        .validator_url("none")
        .display_operation_id(true)
        .use_base_layout();
    let page: Router = SwaggerUi::new("/docs").config(config).into();
    let policy = SetResponseHeaderLayer::overriding(CONTENT_SECURITY_POLICY, CONTENT_POLICY);
    router
        .route(DOCUMENT_PATH, get(serve_text))
        .merge(page.layer(policy))
}

/// Returns the document as in the golden file, with a newline at the end.
pub fn golden(router: OpenApiRouter, about: Description) -> String {
    to_json(&complete(router.into_openapi(), about))
}

fn to_json(document: &OpenApi) -> String {
    let mut text = document.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// Completes the document. Every route requires a bearer token unless it states otherwise (S1).
fn complete(mut document: OpenApi, about: Description) -> OpenApi {
    about.title.clone_into(&mut document.info.title);
    document.info.description = Some(format!("{}\n\n{CONVENTIONS}", about.text));
    env!("CARGO_PKG_VERSION").clone_into(&mut document.info.version);
    // The router sets the contact of the library that generates it.
    document.info.contact = None;
    document.info.license = Some(license());
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("JWT")
        .description(Some("A token signed by the issuer of this fleet (EdDSA)."))
        .build();
    document
        .components
        .get_or_insert_with(Components::new)
        .add_security_scheme(SECURITY_SCHEME, SecurityScheme::Http(scheme));
    document.security = Some(vec![SecurityRequirement::new(
        SECURITY_SCHEME,
        Vec::<String>::new(),
    )]);
    merge_all_of::apply(&mut document);
    if_revision::add(&mut document);
    query_parameters::add(&mut document);
    min_revision::add(&mut document);
    common_responses::add(&mut document);
    integer_bounds::add(&mut document);
    parameter_schemas::correct(&mut document);
    document
}

fn license() -> License {
    const NAME: &str = env!("CARGO_PKG_LICENSE");
    LicenseBuilder::new()
        .name(NAME)
        .identifier(Some(NAME))
        .build()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::health::{Health, ServiceState};
    use crate::http::extract::{Json, Path, Query};
    use crate::problem::Problem;

    fn document() -> serde_json::Value {
        let health = Health::new("test", Arc::new(ServiceState::default));
        let about = Description {
            title: "Test",
            text: "a test",
        };
        serde_json::from_str(&golden(health.routes(), about)).unwrap()
    }

    #[test]
    fn the_document_is_complete_and_requires_a_token_by_default() {
        let document = document();
        assert_eq!(document["info"]["title"], "Test");
        assert_eq!(document["info"]["license"]["name"], "Apache-2.0");
        assert_eq!(document["info"]["contact"], serde_json::Value::Null);
        assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
        assert_eq!(document["security"][0]["token"], serde_json::json!([]));
        assert_eq!(
            document["components"]["securitySchemes"]["token"]["scheme"],
            "bearer"
        );
        assert_eq!(
            document["paths"]["/livez"]["get"]["security"],
            serde_json::json!([{}])
        );
        assert_eq!(
            document["paths"]["/v1/status"]["get"]["security"],
            serde_json::Value::Null
        );
    }

    #[derive(serde::Deserialize, utoipa::ToSchema)]
    struct Item {
        amount: u32,
    }

    #[derive(serde::Deserialize, utoipa::IntoParams)]
    struct LimitQuery {
        limit: u32,
    }

    #[utoipa::path(
        post, path = "/v1/items/{id}", operation_id = "create_item", params(LimitQuery),
        responses((status = 200, description = "the sum"), (status = 400, body = Problem,
            description = "cannot be understood", content_type = "application/problem+json")),
    )]
    async fn create_item(
        Path(id): Path<u32>,
        Query(query): Query<LimitQuery>,
        Json(item): Json<Item>,
    ) -> Json<u32> {
        Json(id + query.limit + item.amount)
    }

    #[test]
    fn our_extractors_are_described_like_those_of_axum() {
        let router = OpenApiRouter::default().routes(utoipa_axum::routes!(create_item));
        let about = Description {
            title: "Test",
            text: "a test",
        };
        let document: serde_json::Value = serde_json::from_str(&golden(router, about)).unwrap();
        let operation = &document["paths"]["/v1/items/{id}"]["post"];
        let body = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
        assert_eq!(body, "#/components/schemas/Item");
        let parameters = operation["parameters"].as_array().unwrap();
        let mut names: Vec<_> = parameters
            .iter()
            .map(|parameter| (&parameter["in"], &parameter["name"]))
            .collect();
        names.sort_by_key(|(location, _)| location.as_str());
        let expected = [("path", "id"), ("query", "limit")];
        assert_eq!(names.len(), expected.len());
        for ((location, name), (expected_location, expected_name)) in names.iter().zip(expected) {
            assert!(*location == expected_location && *name == expected_name);
        }
        let schemas = &document["components"]["schemas"];
        assert!(schemas["Problem"].is_object() && schemas["FieldFault"].is_object());
    }

    #[test]
    fn every_reference_has_a_schema() {
        let document = document();
        let text = document.to_string();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(
                document["components"]["schemas"].get(name).is_some(),
                "{name} is missing"
            );
        }
        let problem = &document["components"]["schemas"]["Problem"];
        assert!(
            problem["properties"]["retry_after_ms"].is_object(),
            "{problem}"
        );
    }
}
