//! The HTTP server of a service: connections, limits, requests, answers and their description.

pub mod authorization;
mod connections;
mod database_url;
pub mod deprecation;
pub mod extract;
pub mod idempotency;
pub mod insecure_modes;
pub mod limits;
pub mod openapi;
pub mod origin;
pub mod pagination;
pub mod problem;
pub mod refusal;
pub mod request_context;
mod scrape;
pub mod server;
mod tls;
