//! Settings of a process, from weakest to strongest: defaults, a TOML file, the environment, flags.
//!
//! An unknown setting is an error that names the setting and its source. A misspelled limit
//! therefore never becomes its default silently (S4). The known names are the fields of the
//! serialized default value, because serde cannot combine `flatten` with `deny_unknown_fields`. A
//! settings struct needs `#[serde(default)]` and may not skip fields during serialization.
//!
//! All programs can share one environment: [`read`] describes which variable belongs to which
//! program. The comment of a field is its text in `--help` and `hayward config explain`.

mod database_url;
mod help;
pub mod insecure_modes;
mod layers;
mod names;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use help::{Setting, SettingsStruct, all_settings, format_setting};
pub use layers::{Outcome, read};

/// Settings of every service, to be flattened into its own:
///
/// ```
/// #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema, Default)]
/// #[serde(default)]
/// struct Settings {
///     #[serde(flatten)]
///     server: hayward_service::ServerSettings,
///     /// Meaning, unit, and default with its reason.
///     own_setting: u32,
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServerSettings {
    /// Address and port to listen on. Default `127.0.0.1:0`: any free port, reachable only from
    /// this machine. An address that other machines can reach must be set explicitly (S3).
    pub listen: SocketAddr,
    /// Address of the database, `postgres://role@host/name`. Default none; a service that needs a
    /// database then reports the missing setting. A database on another machine needs
    /// `?sslmode=verify-full&sslrootcert=FILE` (S25).
    pub database_url: Option<String>,
    /// Directory with the issuer's public key and this service's token. Default none.
    pub keys: Option<PathBuf>,
    /// Allows connections without TLS: to this service from other machines, and from this service
    /// to a database or a collector on another machine. Default false (S3).
    pub allow_insecure: bool,
    /// File with the certificate chain of this service in PEM; it is read again when it changes.
    /// Default none: without TLS, `listen` must be an address that only this machine can reach.
    pub tls_certificate: Option<PathBuf>,
    /// File with the private key of `tls_certificate` in PEM; it is read again when it changes.
    /// Default none.
    pub tls_key: Option<PathBuf>,
    /// Maximum requests per second of one caller, with bursts of five times as many (S28).
    /// Services and task runners are exempt. Default 2,000; 0: no limit.
    pub requests_per_second: u32,
    /// Maximum requests per second without a valid token from one address, with bursts of five
    /// times as many (S28). Requests with a valid token are exempt. Default 50; 0: no limit.
    pub stranger_requests_per_second: u32,
    /// Maximum requests per second of all users of one tenant together, with bursts of five times
    /// as many. Default 8,000; 0: no limit.
    pub tenant_requests_per_second: u32,
    /// Maximum requests of one caller that are processed at once (S27). Default 64; 0: no limit.
    pub requests_at_once: u32,
    /// Maximum long polls of one caller that wait at once (S27). Default 16; 0: no limit.
    pub streams_at_once: u32,
    /// Maximum percentage of all processors that the requests of one caller use while other
    /// callers make requests too. Further requests of this caller wait in a fair queue (G13). The
    /// exemptions of `requests_per_second` apply. Default 12; 0: no limit.
    pub processor_percent_each: u32,
    /// Milliseconds from the last renewal of the writer's lease to its expiry. Default 5,000: a
    /// standby takes over within 10 s, and the leader survives a pause of a second or two (G2).
    pub lease_ms: u64,
    /// Address and port on which Prometheus reads the metrics, at `/metrics`. A scrape needs a
    /// token of scope `scraper`, `viewer` or `operator`. An address that other machines can reach
    /// needs TLS, as for `listen` (S3). Default none: metrics are not served.
    pub scrape_listen: Option<SocketAddr>,
    /// Base address of an OTLP/HTTP collector. A collector on another machine needs https (S3).
    /// Default: the value of `OTEL_EXPORTER_OTLP_ENDPOINT`, or none, which exports nothing.
    pub otlp_endpoint: Option<String>,
    /// File with the authorities that may sign the certificate of the collector; it is read again
    /// when it changes. Default none: the trust store of the machine.
    pub otlp_authority: Option<PathBuf>,
    /// Milliseconds between two exports of metrics. Spans and logs have the same interval, but at
    /// most 2,000. Default 15,000.
    pub otlp_interval_ms: u64,
    /// Percentage of exported traces, among the traces that begin in this process: rounds, and
    /// requests that bring no trace. A request that brings a trace follows the sampling decision of
    /// its client. Default 100.
    pub otlp_trace_percent: u8,
    /// How logs are written: `json`, `text` or `auto`, which is text on a terminal and JSON
    /// elsewhere. Default `auto`.
    pub log_format: LogFormat,
    /// Filter of the logged events, in the syntax of the Rust crate `tracing-subscriber`: `info`,
    /// `debug`, `info,hayward_service=debug`. Default `info`.
    pub log_filter: String,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            database_url: None,
            keys: None,
            allow_insecure: false,
            tls_certificate: None,
            tls_key: None,
            requests_per_second: 2_000,
            stranger_requests_per_second: 50,
            tenant_requests_per_second: 8_000,
            requests_at_once: 64,
            streams_at_once: 16,
            processor_percent_each: 12,
            lease_ms: 5_000,
            scrape_listen: None,
            otlp_endpoint: None,
            otlp_authority: None,
            otlp_interval_ms: 15_000,
            otlp_trace_percent: 100,
            log_format: LogFormat::Auto,
            log_filter: "info".to_owned(),
        }
    }
}

/// How logs are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    #[default]
    Auto,
    Json,
    Text,
}

impl ServerSettings {
    /// Returns the address of the database.
    ///
    /// # Errors
    /// If it is not set, or not safe to use (S3).
    pub fn database_url(&self) -> anyhow::Result<&str> {
        insecure_modes::check_peers(self)?;
        self.database_url
            .as_deref()
            .context("the setting `database_url` is missing")
    }

    /// Opens the keys directory.
    ///
    /// # Errors
    /// If it is not set, or contains no keys.
    pub fn open_keys(&self) -> anyhow::Result<crate::auth::Keys> {
        crate::auth::Keys::open(
            self.keys
                .as_ref()
                .context("the setting `keys` is missing")?,
        )
    }
}

/// Reads the settings of `service` from file, environment and flags. `args` does not contain the
/// name of the program. `--help` and `--version` print their text and end the process.
///
/// # Errors
/// With the name and the source of an unknown or invalid setting.
pub fn load<T: SettingsStruct>(
    service: &str,
    args: impl Iterator<Item = OsString>,
) -> anyhow::Result<T> {
    insecure_modes::check_clock()?;
    let environment: BTreeMap<String, OsString> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .collect();
    match read(service, args, &environment)? {
        Outcome::Settings(settings) => Ok(settings),
        #[expect(clippy::exit, reason = "`--help` and `--version` only print a text")]
        Outcome::Text(text) => {
            use std::io::Write as _;
            // The reader may have closed the pipe. There is no other place to report that.
            let _ = std::io::stdout().write_all(text.as_bytes());
            std::process::exit(0)
        }
    }
}

#[cfg(test)]
mod tests;
