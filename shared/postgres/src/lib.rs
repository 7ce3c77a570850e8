//! Postgres for services: schemas, roles, connection pools and a private server.
//!
//! [`prepare`] creates a schema per service, an owner role for migrations, and a role that may use
//! only the rows of that schema. [`connect`] opens a pool with timeouts. [`Embedded`] is the
//! private server that `hayward up` and the tests start if no address is given.
//!
//! This crate has no table and no query of any service. It does not check SQL at compile time,
//! because it must compile without a database.

mod connect_error;
mod embedded;
mod migration_check;
mod pool;
mod prepare;

pub use connect_error::ConnectError;
pub use embedded::{Embedded, EmbeddedError, Settings, binaries, program};
pub use migration_check::contractions;
pub use pool::{connect, connect_if_exists, connect_one};
pub use prepare::{
    PrepareError, Schema, SharedMigrations, create_database, drop_database, newest_version,
    prepare, role_url,
};
