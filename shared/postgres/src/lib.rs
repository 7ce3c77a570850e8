//! Postgres for services: schemas, roles, connection pools and a private server.
//!
//! [`prepare`] creates a schema per service, an owner role for migrations, and a role that may use
//! only the rows of that schema. [`connect`] opens a pool with timeouts. [`Embedded`] is the
//! private server that `hayward up` and the tests start if no address is given.
//!
//! This crate has no table and no query of any service. It does not check SQL at compile time,
//! because it must compile without a database.

mod embedded;
mod expand;
mod failure;
mod pool;
mod prepare;

pub use embedded::{Embedded, EmbeddedError, Settings, binaries, program};
pub use expand::contractions;
pub use failure::ConnectError;
pub use pool::{connect, connect_if_there, connect_one};
pub use prepare::{
    PrepareError, Schema, Shared, create_database, drop_database, newest, prepare, role_url,
};
