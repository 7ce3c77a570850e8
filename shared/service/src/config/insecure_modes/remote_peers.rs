//! Insecure connections to other nodes: an attacker in between could read them, or reply instead of
//! the server.

use std::net::IpAddr;

use reqwest::Url;

use crate::config::ServerSettings;
use crate::config::database_url::DatabaseUrl;

/// The server of an insecure connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InsecurePeer {
    /// Name of the mode in the status.
    pub mode: String,
    /// Advice for the operator.
    pub advice: String,
}

pub(super) fn insecure_peers(settings: &ServerSettings) -> Vec<InsecurePeer> {
    let database = settings.database_url.as_deref().and_then(insecure_database);
    let collector = settings
        .otlp_endpoint
        .as_deref()
        .and_then(insecure_collector);
    database.into_iter().chain(collector).collect()
}

/// Returns the database connection if it is insecure. The address itself must require full
/// verification. An invalid address is refused later, at connect (S25).
pub(super) fn insecure_database(url: &str) -> Option<InsecurePeer> {
    let DatabaseUrl { host, sslmode, .. } =
        DatabaseUrl::parse(url).filter(|url| !url.is_socket())?;
    if is_this_machine(&host) {
        return None;
    }
    let kind = match sslmode.as_deref() {
        Some("verify-full") => return None,
        // The connection is encrypted, but the identity of the server is not verified.
        Some("require" | "verify-ca") => "unverified",
        _ => "plain",
    };
    let stated_mode = sslmode.map_or_else(
        || "says no `sslmode`".to_owned(),
        |it| format!("says `{it}`"),
    );
    Some(InsecurePeer {
        mode: format!("{kind}_postgres_at_{host}"),
        advice: format!(
            "the database at {host} is on another machine, and its address {stated_mode}: add \
             `?sslmode=verify-full&sslrootcert=FILE`, with the file of the authority that signed \
             its certificate"
        ),
    })
}

fn insecure_collector(url: &str) -> Option<InsecurePeer> {
    let url = Url::parse(url).ok()?;
    let host = url.host_str()?;
    if url.scheme() != "http" || is_this_machine(host) {
        return None;
    }
    Some(InsecurePeer {
        mode: format!("plain_telemetry_to_{host}"),
        advice: format!(
            "the collector at {host} is on another machine, and receives names of users and work: \
             let `otlp_endpoint` begin with https, and `otlp_authority` name the file of the \
             authority that signed its certificate"
        ),
    })
}

/// Returns whether the host name or address means this node.
fn is_this_machine(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let loopback = host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    loopback || host.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str) -> Option<String> {
        insecure_database(url).map(|peer| peer.mode)
    }

    /// Only `verify-full` verifies the server (S25).
    #[test]
    fn a_remote_database_without_verification_is_an_insecure_mode() {
        for url in [
            "postgres://a@localhost/b?host=/run/pg&sslmode=disable",
            "postgres://a@%2Frun%2Fpg/b",
            "postgres://a@LOCALHOST/b",
            "postgres://a@127.0.0.1:5432/b?sslmode=disable",
            "postgres://a@[::1]/b",
            "postgres://a@db/b?host=127.0.0.1",
            "postgres://a:c@db.example:5432/b?sslmode=verify-full&sslrootcert=/x/ca.pem",
            "no address",
        ] {
            assert_eq!(mode(url), None, "{url}");
        }
        for (url, expected) in [
            ("postgres://a:c@db/b", "plain_postgres_at_db"),
            ("postgres://a@db/b?sslmode=disable", "plain_postgres_at_db"),
            ("postgres://a@db/b?sslmode=prefer", "plain_postgres_at_db"),
            (
                "postgres://a@db/b?sslmode=require",
                "unverified_postgres_at_db",
            ),
            (
                "postgres://a@db/b?ssl-mode=verify-ca",
                "unverified_postgres_at_db",
            ),
            (
                "postgres:///b?hostaddr=192.0.2.1",
                "plain_postgres_at_192.0.2.1",
            ),
            // The driver uses the last value.
            (
                "postgres://a@db/b?sslmode=verify-full&sslmode=disable",
                "plain_postgres_at_db",
            ),
            ("postgres://a@127.0.0.1/b?host=db", "plain_postgres_at_db"),
        ] {
            assert_eq!(mode(url).as_deref(), Some(expected), "{url}");
        }
    }

    #[test]
    fn the_advice_contains_no_password() {
        let advice = insecure_database("postgres://a:sesame@db/b?password=sesame")
            .unwrap()
            .advice;
        assert!(
            advice.contains("sslmode=verify-full") && !advice.contains("sesame"),
            "{advice}"
        );
    }

    #[test]
    fn a_remote_collector_without_tls_is_an_insecure_mode() {
        assert_eq!(insecure_collector("http://127.0.0.1:4318"), None);
        assert_eq!(insecure_collector("http://[::1]:4318"), None);
        assert_eq!(insecure_collector("https://otel-collector:4318"), None);
        let peer = insecure_collector("http://otel-collector:4318").unwrap();
        assert_eq!(peer.mode, "plain_telemetry_to_otel-collector");
        assert!(peer.advice.contains("otlp_authority"), "{}", peer.advice);
    }
}
