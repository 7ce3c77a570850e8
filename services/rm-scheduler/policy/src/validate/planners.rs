//! Validation of external planners (D7): only in a root pool, with an address that contains no
//! secret.

use hayward_rm_scheduler_api::policy::Pool;

use crate::fault::Faults;

/// Maximum bytes of an address.
const MAX_URL_BYTES: usize = 500;
/// Allowed timeouts in milliseconds.
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 10..=60_000;

pub(super) fn check(name: &str, pool: &Pool, faults: &mut Faults) {
    let Some(planner) = &pool.planner else {
        return;
    };
    let path = ["pools", name, "planner"];
    if let Some(parent) = &pool.parent {
        let detail = format!(
            "only a pool without parent has a planner: move it to the top of {parent:?}'s tree"
        );
        faults.add(&path, detail);
    }
    if pool.queues.is_some() {
        faults.add(&path, "the pool has `queues`: keep one of the two");
    }
    if let Err(detail) = check_address(&planner.url) {
        faults.add(&["pools", name, "planner", "url"], detail);
    }
    if !TIMEOUT_MS.contains(&planner.timeout_ms) {
        let (least, most) = TIMEOUT_MS.into_inner();
        let path = ["pools", name, "planner", "timeout_ms"];
        faults.add(&path, format!("must be {least} to {most}"));
    }
}

fn check_address(url: &str) -> Result<(), String> {
    let error = |detail: &str| Err(detail.to_owned());
    if url.len() > MAX_URL_BYTES {
        return Err(format!("must be at most {MAX_URL_BYTES} bytes"));
    }
    if !url.chars().all(|it| it.is_ascii_graphic()) {
        return error(
            "has blanks or other characters that are not allowed in an address: write them as %20",
        );
    }
    let after_scheme = url.strip_prefix("http://");
    let Some(after_scheme) = after_scheme.or_else(|| url.strip_prefix("https://")) else {
        return error("must begin with http:// or https://, as in \"http://127.0.0.1:9000/plan\"");
    };
    if after_scheme.contains(['?', '#', '\\']) {
        return error("has a query or a fragment: a planner gets nothing but the request");
    }
    let authority = after_scheme.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        return error("names a user: many can read a policy, so it must contain no secret");
    }
    let (host, port) = split_port(authority);
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-._".contains(it);
    let is_bracketed = host.starts_with('[');
    let is_valid_host = match host.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !is_bracketed && !host.is_empty() && host.chars().all(is_plain),
    };
    if !is_valid_host {
        return Err(format!("{host:?} is not a name or address of a machine"));
    }
    if url.starts_with("http://") && !is_loopback(host) {
        return error(
            "would send the request unencrypted over the network: use https:// for all but \
            127.0.0.1 or localhost",
        );
    }
    match port.map(str::parse::<u16>) {
        Some(Ok(0) | Err(_)) => error("has an invalid port: use 1 to 65535"),
        _ => Ok(()),
    }
}

/// Returns whether a host is a loopback address or `localhost`.
fn is_loopback(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let literal = inner.unwrap_or(host).parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || literal.is_ok_and(|it| it.is_loopback())
}

/// Splits an authority into host and port. The colons of an address in brackets are part of the
/// host.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    let end = authority.rfind(']').map_or(0, |index| index + 1);
    match authority[end..].find(':') {
        Some(index) => (
            &authority[..end + index],
            Some(&authority[end + index + 1..]),
        ),
        None => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use hayward_rm_scheduler_api::policy::PoolPlanner;
    use hayward_vocabulary::Quantum;
    use serde_json::json;

    use super::*;

    fn faults_of(pool: &Pool) -> Vec<(String, String)> {
        let mut faults = Faults::default();
        check("batch", pool, &mut faults);
        let faults = faults.0.into_iter();
        faults.map(|it| (it.pointer, it.detail)).collect()
    }

    fn pool_with_planner(url: &str) -> Pool {
        let (url, timeout_ms) = (url.to_owned(), 2_000);
        Pool {
            planner: Some(PoolPlanner { url, timeout_ms }),
            quantum: Some(Quantum::default()),
            ..Pool::default()
        }
    }

    #[test]
    fn valid_addresses_are_accepted() {
        for url in [
            "http://127.0.0.1:9000",
            "https://planner.example.org/v1/plan",
            "http://[::1]:80/",
            "http://localhost:9000/plan",
            "http://127.8.0.1",
            "https://10.0.0.7:9000",
        ] {
            assert_eq!(faults_of(&pool_with_planner(url)), [], "{url}");
        }
    }

    #[test]
    fn invalid_addresses_are_reported_at_their_place() {
        for url in [
            "",
            "planner",
            "ftp://planner",
            "file:///etc/passwd",
            "http://",
            "http:///plan",
            "http://a b",
            "http://me:secret@planner/",
            "http://planner/?token=x",
            "http://planner/#x",
            "http://planner:0",
            "http://planner:",
            "http://planner:99999",
            "http://[::1",
            "http://[nonsense]:1",
            "http://pl\u{e4}nner",
            "http://planner\\@evil",
            "http://planner",
            "http://10.0.0.7:9000/plan",
            "http://localhost.example.org/",
            "http://[2001:db8::1]/",
            "http://127.0.0.1.example.org/",
            &format!("http://planner/{}", "x".repeat(MAX_URL_BYTES)),
        ] {
            let faults = faults_of(&pool_with_planner(url));
            assert_eq!(faults.len(), 1, "{url}: {faults:?}");
            assert_eq!(faults[0].0, "/pools/batch/planner/url", "{url}");
        }
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let mut pool = pool_with_planner("nowhere");
        pool.parent = Some("default".into());
        pool.queues = Some(json!({}));
        pool.planner.as_mut().unwrap().timeout_ms = 9;
        let pointers: Vec<String> = faults_of(&pool).into_iter().map(|it| it.0).collect();
        let planner = "/pools/batch/planner";
        let (url, ms) = (format!("{planner}/url"), format!("{planner}/timeout_ms"));
        assert_eq!(pointers, [planner, planner, url.as_str(), ms.as_str()]);
    }
}
