//! The parts of a database address that decide how to connect. They are parsed in the same way as
//! the database driver parses them.

use reqwest::Url;

/// Host and TLS mode of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DatabaseUrl {
    /// Name, IP address, or directory of a socket.
    pub host: String,
    pub port: u16,
    /// Value of `sslmode` as written. `None` if it is absent.
    pub sslmode: Option<String>,
}

impl DatabaseUrl {
    /// Parses an address. Returns `None` for an invalid address or one without a host, which the
    /// connection attempt refuses later.
    pub(super) fn parse(url: &str) -> Option<Self> {
        let url = Url::parse(url).ok()?;
        // The last value of a parameter wins.
        let last_value = |names: &[&str]| {
            let pairs = url.query_pairs();
            let values = pairs.filter(|(name, _)| names.contains(&name.as_ref()));
            values.last().map(|(_, value)| value.into_owned())
        };
        let url_host = url.host_str().filter(|host| !host.is_empty());
        let host = last_value(&["host", "hostaddr"])
            .or_else(|| url_host.map(str::to_owned))
            .or_else(|| std::env::var("PGHOST").ok())?;
        let port = last_value(&["port"]).and_then(|text| text.parse().ok());
        let from_environment = || std::env::var("PGPORT").ok()?.parse().ok();
        Some(Self {
            host,
            port: port
                .or(url.port())
                .or_else(from_environment)
                .unwrap_or(5432),
            sslmode: last_value(&["sslmode", "ssl-mode"]),
        })
    }

    pub(super) fn is_socket(&self) -> bool {
        self.host.starts_with('/') || self.host.to_ascii_lowercase().starts_with("%2f")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_wins_and_missing_ones_have_defaults() {
        let parse = |url: &str| DatabaseUrl::parse(url).unwrap();
        let defaults = parse("postgres://a:c@db/b");
        assert_eq!((defaults.host.as_str(), defaults.port), ("db", 5432));
        assert_eq!(defaults.sslmode, None);
        let explicit = parse("postgres://a@db:1/b?port=7&host=x&sslmode=disable&ssl-mode=require");
        assert_eq!((explicit.host.as_str(), explicit.port), ("x", 7));
        assert_eq!(explicit.sslmode.as_deref(), Some("require"));
        assert!(parse("postgres://a@localhost/b?host=/run/pg").is_socket());
        assert!(parse("postgres://a@%2Frun%2Fpg/b").is_socket());
        assert_eq!(DatabaseUrl::parse("no address"), None);
    }
}
