//! Settings of a process, from weakest to strongest: defaults, a TOML file, the environment, flags.
//!
//! An unknown setting is an error that names it and its source, so that a misspelled limit never
//! silently becomes a default (S4). The known names are those of the serialized default value,
//! because `flatten` and `deny_unknown_fields` do not work together. Therefore a settings struct
//! needs `#[serde(default)]` and may not skip fields during serialization.
//!
//! One environment serves all programs: [`read`] describes which variable belongs to which program.
//! The comment of a field is its text in `--help` and `hayward config explain`.

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
///     /// What it means, with its unit and why it has its default.
///     own_setting: u32,
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServerSettings {
    /// Address and port to listen on. Default `127.0.0.1:0`, any free port of this machine alone:
    /// an address others can reach is chosen, never inherited (S3).
    pub listen: SocketAddr,
    /// Address of the database, `postgres://role@host/name`. Default none: a service that needs a
    /// database reports the missing setting and uses no other database. An address on another
    /// machine needs `?sslmode=verify-full&sslrootcert=FILE` (S25).
    pub database_url: Option<String>,
    /// Directory with the issuer's public key and this service's token. Default none.
    pub keys: Option<PathBuf>,
    /// Allows an address others can reach without TLS, and a database or a collector on another
    /// machine without it. Default false (S3).
    pub allow_insecure: bool,
    /// File with the certificate chain in PEM to serve TLS with; read again when it changes.
    /// Default none: only an address of this machine alone is served.
    pub tls_certificate: Option<PathBuf>,
    /// File with the key of that certificate in PEM; read again when it changes. Default none.
    pub tls_key: Option<PathBuf>,
    /// Requests each caller may make in a second, and five times as many in one burst (S28).
    /// Services and runners of tasks are not counted. Default 2,000; 0: no limit.
    pub requests_per_second: u32,
    /// Requests without a good token that are made from one address in a second, and five times as
    /// many in one burst (S28). Good tokens are not counted. Default 50; 0: no limit.
    pub stranger_requests_per_second: u32,
    /// Requests all users of one tenant together may make in a second, and five times as many in
    /// one burst. Default 8,000; 0: no limit.
    pub tenant_requests_per_second: u32,
    /// Requests of one caller worked on at once (S27). Default 64; 0: no limit.
    pub requests_at_once: u32,
    /// Long polls of one caller that wait at once (S27). Default 16; 0: no limit.
    pub streams_at_once: u32,
    /// Percent of all processors that the requests of one caller may use together while other
    /// callers make requests too. Beyond that, its requests wait in a fair queue (G13). Callers are
    /// counted as for `requests_per_second`. Default 12; 0: no limit.
    pub processor_percent_each: u32,
    /// Milliseconds from the last renewal of the writer's lease to its end. Default 5,000: a
    /// standby takes over within 10 s, and a pause of a second or two has no effect (G2).
    pub lease_ms: u64,
    /// Address and port for Prometheus, with the metrics at `/metrics`. A scrape needs a token of
    /// scope `scraper`, `viewer` or `operator`. Default none. An address that others can reach has
    /// the same conditions as `listen` (S3).
    pub scrape_listen: Option<SocketAddr>,
    /// Base address of an OTLP/HTTP collector; `OTEL_EXPORTER_OTLP_ENDPOINT` if this is not set.
    /// Default none: nothing is exported. A collector on another machine needs https (S3).
    pub otlp_endpoint: Option<String>,
    /// File with the authorities that may sign the certificate of the collector; read again when it
    /// changes. Default none: the trust store of the machine.
    pub otlp_authority: Option<PathBuf>,
    /// Milliseconds between two exports of metrics; spans and logs are sent as often, and at least
    /// each 2,000. Default 15,000.
    pub otlp_interval_ms: u64,
    /// Percent of traces that are exported, among those that begin here: rounds, and requests
    /// without a trace. A request with a trace follows the decision of that trace. Default 100.
    pub otlp_trace_percent: u8,
    /// How logs are written: `json`, `text` or `auto`, which is text on a terminal and JSON
    /// elsewhere. Default `auto`.
    pub log_format: LogFormat,
    /// Which events are logged, as `tracing` filters have it: `info`, `debug`,
    /// `info,hayward_service=debug`. Default `info`.
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
