//! Maps the id of a piece of work to its API route. The prefix of the id selects the kind of work.

use hayward_vocabulary::WorkId;

/// Returns the route of a piece of work.
///
/// # Errors
/// When the id is of work that has no route of its own, such as one pool worker.
pub fn route_of_work(id: &WorkId) -> anyhow::Result<String> {
    let collection = match id.as_str().split_once('_') {
        Some(("job", _)) => "jobs",
        Some(("svc", _)) => "services",
        Some(("rsv", _)) => "reservations",
        Some(("wp", _)) => anyhow::bail!(
            "{id} belongs to a worker pool: `hayward pool show {pool}` shows it, and `hayward \
             explain {pool}.N` says why worker N waits",
            pool = id.parent()
        ),
        Some(("app", _)) => anyhow::bail!(
            "{id} belongs to an application: `hayward explain {id}` says why it waits, and \
             `hayward app APPLICATION` shows how its tasks stand"
        ),
        _ => anyhow::bail!("{id} is no id of work: those begin with job_, svc_ or rsv_"),
    };
    Ok(format!("/v1/{collection}/{}", id.parent()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_prefix_selects_the_route() {
        let route = |text: &str| route_of_work(&WorkId::new(text).unwrap());
        assert_eq!(route("job_1").unwrap(), "/v1/jobs/job_1");
        assert_eq!(route("svc_1.3").unwrap(), "/v1/services/svc_1");
        assert_eq!(route("rsv_1").unwrap(), "/v1/reservations/rsv_1");
        assert!(route("alc_1").is_err() && route("7").is_err());
        let message = route("wp_1.2").unwrap_err().to_string();
        assert!(message.contains("hayward pool show wp_1`"), "{message}");
    }
}
