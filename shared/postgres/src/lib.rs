//! What every service needs from Postgres before its first query.
//!
//! [`prepare`] makes a database out of nothing: per service one schema, one owner role that
//! migrates and one runner role that may touch the rows of that schema and nothing else.
//! [`connect`] opens a pool as a runner, with every wait bounded. [`Embedded`] is the private
//! server that `hayward up` and the tests run when no address is given.
//!
//! This crate holds no table and no query of any service, and checks none of its SQL at compile
//! time: it must compile before there is a database to check against.

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
