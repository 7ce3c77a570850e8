//! The HTTP server of a service: connections, limits, requests, responses and their description.

pub mod authentication;
pub mod authorization;
mod connections;
pub mod deprecation;
pub mod extract;
pub mod idempotency;
pub mod limits;
pub mod openapi;
pub mod pagination;
pub mod refusal_responses;
pub mod request_context;
pub mod request_origin;
mod scrape;
pub mod server;
mod tls;

pub use crate::problem;
