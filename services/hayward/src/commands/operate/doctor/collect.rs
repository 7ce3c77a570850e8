//! Collects the facts of `hayward doctor`. It calls all services in parallel, with short timeouts.

use std::path::Path;
use std::time::{Duration, Instant};

use hayward_blocklist_api::BlockOverview;
use hayward_job_converter_api::{Explanation, WorkList, WorkView};
use hayward_node_status_api::drain::DrainState;
use hayward_node_status_api::{Health, NodeView};
use hayward_publication::Cursor;
use hayward_service::health::Status;
use hayward_service::invariants::Invariants;
use hayward_service::{Client, Clock as _, SystemClock};
use hayward_vocabulary::Timestamp;
use http::Method;
use serde::de::DeserializeOwned;

use super::evaluate::{is_low, publisher_of};
use super::facts::{
    BlockedNode, Disk, Fact, Facts, Lag, NodeFacts, NodeProblem, Replica, ServiceFacts,
    UnhealthyNode, WaitingWork,
};
use super::identity::{SharedAccountNode, shared_account};
use crate::connection::pages::{self, PageFields};
use crate::connection::work_routes::route_of_work;
use crate::connection::{Role, Service, Session};
use crate::output::format::format_bytes;
use crate::output::{error_text, parse_response};

/// Timeout of a status request. A slower service counts as down.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a request for a list. Lists are long in a fleet of many thousands of nodes.
const LIST_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum number of the longest waits in the result.
const MAX_WAITS: usize = 5;
/// Maximum number of work items, the oldest first, that are searched for the longest waits.
const MAX_EXAMINED: usize = 100;
const NODE_PAGES: PageFields = PageFields {
    list: "nodes",
    next: "next_cursor",
};

pub async fn collect_facts(session: &Session) -> Facts {
    let at = SystemClock.now();
    let services = async {
        let [
            job_converter,
            rm_scheduler,
            container_manager,
            node_status,
            blocklist,
        ] = Service::ALL.map(|service| collect_service(session, service));
        let facts = tokio::join!(
            job_converter,
            rm_scheduler,
            container_manager,
            node_status,
            blocklist
        );
        Vec::from(<[ServiceFacts; 5]>::from(facts))
    };
    let lists = async {
        tokio::join!(
            read_nodes(session),
            read_blocked(session),
            read_waiting(session, at)
        )
    };
    let (services, (nodes, blocked, waiting)) = tokio::join!(services, lists);
    Facts {
        at,
        services: with_lags(services),
        nodes,
        blocked,
        waiting,
        disk: read_disk(session),
    }
}

/// Address of a replica, its status, and the milliseconds that its clock is ahead of this machine.
type ReplicaStatus = (String, Fact<(Status, Option<i64>)>);

/// Reads the status of each address, and the other facts from the leader.
async fn collect_service(session: &Session, service: Service) -> ServiceFacts {
    let list = session.url(service).unwrap_or_default();
    let mut tasks = tokio::task::JoinSet::new();
    for (index, url) in addresses(&list).into_iter().enumerate() {
        let client = session.client_at(&url, Role::Reader);
        tasks.spawn(async move { (index, url, read_status(client).await) });
    }
    let mut responses = tasks.join_all().await;
    responses.sort_by_key(|(index, ..)| *index);
    let responses = responses.into_iter().map(|(_, url, status)| (url, status));
    let ((url, status), others) = choose_replica(responses.collect()).unwrap_or_else(|| {
        let error = session.url(service).err();
        let error = error.map_or_else(|| "it has no address".to_owned(), |it| first_line(&it));
        ((list, Err(error)), Vec::new())
    });
    let (status, clock_ahead_ms) = match status {
        Ok((status, ahead)) => (Ok(status), ahead),
        Err(error) => (Err(error), None),
    };
    let invariants = match &status {
        Ok(_) => read_invariants(session.client_at(&url, Role::Reader)).await,
        Err(error) => Err(error.clone()),
    };
    let replicas = others.into_iter().map(|(url, status)| Replica {
        url,
        status: status.map(|(status, _)| status),
    });
    ServiceFacts {
        name: service.name(),
        url,
        status,
        replicas: replicas.collect(),
        invariants,
        clock_ahead_ms,
        lags: Vec::new(),
    }
}

/// Splits a setting that lists addresses.
fn addresses(list: &str) -> Vec<String> {
    let all = list.split(',').map(str::trim);
    all.filter(|url| !url.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Chooses the leader, otherwise a ready replica, otherwise one that answers, otherwise the first.
/// Returns the chosen replica and the others.
fn choose_replica(mut all: Vec<ReplicaStatus>) -> Option<(ReplicaStatus, Vec<ReplicaStatus>)> {
    // Tuples of bool compare field by field, and true is greater than false.
    let rank = |(_, response): &ReplicaStatus| match response {
        Ok((status, _)) => (true, status.leader && status.ready, status.ready),
        Err(_) => (false, false, false),
    };
    let best_rank = all.iter().map(rank).max()?;
    let index = all.iter().position(|it| rank(it) == best_rank)?;
    let chosen = all.remove(index);
    Some((chosen, all))
}

/// Reads the status of a service, and how many milliseconds its clock is ahead of this machine.
async fn read_status(client: anyhow::Result<Client>) -> Fact<(Status, Option<i64>)> {
    let response = async {
        let client = client?;
        let (sent_at, started) = (SystemClock.now(), Instant::now());
        let call = client
            .call(Method::GET, "/v1/status")
            .timeout(STATUS_TIMEOUT);
        let response = call.send_for_response::<Status>().await?;
        let took = u64::try_from(started.elapsed().as_millis()).unwrap_or(0);
        let date = response.date();
        Ok((
            response.body,
            date.map(|date| ahead_ms(date, sent_at, took)),
        ))
    };
    response.await.map_err(|error| first_line(&error))
}

async fn read_invariants(client: anyhow::Result<Client>) -> Fact<Invariants> {
    let response = async {
        let client = client?;
        anyhow::Ok(
            client
                .get_with_timeout("/v1/invariants", STATUS_TIMEOUT)
                .await?,
        )
    };
    response.await.map_err(|error| first_line(&error))
}

/// Returns the milliseconds that the clock of a service is ahead. The date header has whole
/// seconds, so the middle of the second is used.
fn ahead_ms(date: Timestamp, sent_at: Timestamp, took_ms: u64) -> i64 {
    let local_time = sent_at.plus_ms(took_ms / 2);
    date.plus_ms(500).unix_ms() - local_time.unix_ms()
}

/// Reads a response of one service.
async fn get<T: DeserializeOwned>(session: &Session, service: Service, path: &str) -> Fact<T> {
    let response = async {
        let client = session.client(service, Role::Reader)?;
        anyhow::Ok(client.get_with_timeout(path, STATUS_TIMEOUT).await?)
    };
    response.await.map_err(|error| first_line(&error))
}

fn first_line(error: &anyhow::Error) -> String {
    let text = error_text::describe(error);
    text.lines().next().unwrap_or_default().to_owned()
}

/// Adds the lag of each follower, which is the difference between its revision and the publisher's.
fn with_lags(services: Vec<ServiceFacts>) -> Vec<ServiceFacts> {
    let revision = |name: Option<&str>| {
        let mut services = services.iter();
        let publisher = services.find(|it| Some(it.name) == name)?;
        publisher.status.as_ref().ok()?.revision
    };
    let lags = |service: &ServiceFacts| {
        let followers = service.status.as_ref().map(|it| it.followers.as_slice());
        let followers = followers.unwrap_or_default().iter();
        let lag = |follower: &hayward_service::FollowerStatus| {
            let cursor = follower.cursor.as_deref().and_then(Cursor::parse);
            let published = revision(publisher_of(&follower.publication));
            let behind = cursor.zip(published).map(|(cursor, published)| {
                // The publisher may have answered before the follower read a newer revision.
                published.saturating_sub(cursor.revision)
            });
            Lag {
                publication: follower.publication.clone(),
                silent_ms: follower.lag_ms,
                stale: follower.stale,
                behind,
                fault: follower.fault.clone(),
            }
        };
        followers.map(lag).collect::<Vec<Lag>>()
    };
    let all: Vec<Vec<Lag>> = services.iter().map(lags).collect();
    let pairs = services.into_iter().zip(all);
    pairs
        .map(|(service, lags)| ServiceFacts { lags, ..service })
        .collect()
}

async fn read_nodes(session: &Session) -> Fact<NodeFacts> {
    let response = async {
        let client = session.client(Service::NodeStatus, Role::Reader)?;
        let pages = pages::read_all(&client, "/v1/nodes", NODE_PAGES);
        let mut all = tokio::time::timeout(LIST_TIMEOUT, pages).await??;
        let list = all.get_mut(NODE_PAGES.list).map(serde_json::Value::take);
        parse_response::<Vec<NodeView>>(list.unwrap_or_default())
    };
    let nodes: Vec<NodeView> = response.await.map_err(|error| first_line(&error))?;
    Ok(count_nodes(&nodes))
}

/// Counts the nodes by health, and lists those that need an operator.
pub fn count_nodes(nodes: &[NodeView]) -> NodeFacts {
    let mut facts = NodeFacts::default();
    for node in nodes {
        let entry = &node.entry;
        let (count, problem) = match entry.health {
            Health::Healthy => (&mut facts.healthy, None),
            Health::Suspect => (&mut facts.suspect, Some(NodeProblem::Suspect)),
            Health::Lost => (&mut facts.lost, Some(NodeProblem::Lost)),
            Health::Quiesced | Health::Unknown => {
                (&mut facts.quiesced, Some(NodeProblem::Quiesced))
            }
        };
        *count += 1;
        let account = shared_account(&entry.labels);
        facts
            .shared_accounts
            .extend(account.map(|account| SharedAccountNode {
                node: entry.node.to_string(),
                account,
            }));
        facts.varied_off += u64::from(!entry.schedulable);
        facts.drains += u64::from(node.drain_state.is_some());
        let mut add_problem = |problem, detail: String| {
            facts.unhealthy.push(UnhealthyNode {
                node: entry.node.to_string(),
                problem,
                detail,
            });
        };
        // An operator has varied off or drained the node, so its absence is expected.
        let is_absence_expected = !entry.schedulable || node.drain_state.is_some();
        if node.rivals.is_empty() {
            if let Some(problem) = problem.filter(|_| !is_absence_expected) {
                add_problem(problem, entry.reason.clone());
            }
        } else {
            add_problem(NodeProblem::DuplicateAgents, node.rivals.join(", "));
        }
        if node.drain_state == Some(DrainState::Failed) {
            add_problem(NodeProblem::DrainFailed, entry.reason.clone());
        }
        let (free, total) = (node.metrics.disk_free_bytes, node.metrics.disk_total_bytes);
        if entry.health == Health::Healthy && is_low(free, total) {
            add_problem(
                NodeProblem::DiskLow,
                format!("{} of {} left", format_bytes(free), format_bytes(total)),
            );
        }
    }
    facts
}

async fn read_blocked(session: &Session) -> Fact<Vec<BlockedNode>> {
    let all: BlockOverview = get(session, Service::Blocklist, "/v1/blocklist").await?;
    let nodes = all.nodes.into_iter().map(|view| BlockedNode {
        node: view.item.identifier,
        cause: view.item.cause,
        automatic: view.item.automatic,
        on_trial: view.item.canary,
    });
    Ok(nodes.collect())
}

/// Returns the longest waits. A wait begins with the submission, or with the current verdict if
/// that is later.
async fn read_waiting(session: &Session, now: Timestamp) -> Fact<Vec<WaitingWork>> {
    let list = |route: &str| {
        let path = format!("/v1/{route}?state=waiting&limit={MAX_EXAMINED}");
        async move { get::<WorkList>(session, Service::JobConverter, &path).await }
    };
    let (jobs, services, reservations) =
        tokio::join!(list("jobs"), list("services"), list("reservations"));
    let all = [jobs?, services?, reservations?];
    let mut all: Vec<WorkView> = all.into_iter().flat_map(|list| list.items).collect();
    // A wait is at most as long as the age of its work. The search goes from the oldest work to the
    // newest, and ends when enough waits exceed the next age.
    all.sort_by_key(|view| view.submitted_at);
    let mut longest = Vec::new();
    for view in all.into_iter().take(MAX_EXAMINED) {
        if has_longest_waits(&longest, view.submitted_at) {
            break;
        }
        let since = verdict_since(session, &view).await;
        longest.push(waiting_entry(view, since, now));
        longest.sort_by_key(|it| it.since);
        longest.truncate(MAX_WAITS);
    }
    Ok(longest)
}

/// Returns true if work submitted at this time or later cannot wait longer than any of these.
fn has_longest_waits(longest: &[WaitingWork], submitted_at: Timestamp) -> bool {
    let last = longest.get(MAX_WAITS - 1);
    last.is_some_and(|last| last.since <= submitted_at)
}

/// Returns the time since which the current verdict holds. Returns `None` without a verdict.
async fn verdict_since(session: &Session, view: &WorkView) -> Option<Timestamp> {
    let path = format!("{}/explain", route_of_work(&view.id).ok()?);
    let explained = get::<Explanation>(session, Service::JobConverter, &path).await;
    explained.ok()?.since
}

fn waiting_entry(view: WorkView, verdict: Option<Timestamp>, now: Timestamp) -> WaitingWork {
    let since = verdict.map_or(view.submitted_at, |since| since.max(view.submitted_at));
    WaitingWork {
        work: view.id.to_string(),
        user: view.user.to_string(),
        since,
        waits_ms: now.ms_since(since),
        reason: view.reason,
    }
}

fn read_disk(session: &Session) -> Option<Disk> {
    let (free_bytes, total_bytes) = disk_space(session.state())?;
    Some(Disk {
        free_bytes,
        total_bytes,
    })
}

/// Returns the free and total bytes of the disk of a directory. Returns `None` if the directory is
/// missing.
pub fn disk_space(dir: &Path) -> Option<(u64, u64)> {
    let stats = nix::sys::statvfs::statvfs(dir).ok()?;
    let block = stats.fragment_size();
    let free = block.saturating_mul(stats.blocks_available());
    Some((free, block.saturating_mul(stats.blocks())))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, change: &Value) -> NodeView {
        let mut view = json!({
            "node": name, "pool": "default", "capacity": {"memory_bytes": 1, "cpu_milli": 1},
            "health": "healthy", "schedulable": true, "reason": "heartbeats arrive",
            "since": "2026-01-01T00:00:00.000Z", "boot_id": "b", "agent_instance": "a",
            "metrics": {}, "heartbeat_age_ms": 1, "missed": 0, "version": "0.1.0",
        });
        let fields = view.as_object_mut().unwrap();
        fields.extend(change.as_object().unwrap().clone());
        serde_json::from_value(view).unwrap()
    }

    #[test]
    fn nodes_are_counted_and_unhealthy_nodes_are_named() {
        let low = json!({"disk_total_bytes": 100_u64 << 30, "disk_free_bytes": 1_u64 << 30});
        let facts = count_nodes(&[
            node("n1", &json!({})),
            node("n2", &json!({"health": "suspect"})),
            node("n3", &json!({"health": "lost", "schedulable": false})),
            node("n4", &json!({"health": "quiesced", "rivals": ["a", "b"]})),
            node("n5", &json!({ "metrics": low })),
            node("n6", &json!({"drain_state": "failed"})),
        ]);
        assert_eq!((facts.healthy, facts.suspect, facts.lost), (3, 1, 1));
        assert_eq!((facts.quiesced, facts.varied_off, facts.drains), (1, 1, 1));
        let named = facts
            .unhealthy
            .iter()
            .map(|it| (it.node.as_str(), it.problem));
        let expected = [
            ("n2", NodeProblem::Suspect),
            ("n4", NodeProblem::DuplicateAgents),
            ("n5", NodeProblem::DiskLow),
            ("n6", NodeProblem::DrainFailed),
        ];
        assert_eq!(
            named.collect::<Vec<_>>(),
            expected,
            "an operator has varied n3 off, so its loss is expected"
        );
    }

    fn replica_status(url: &str, leader: bool) -> ReplicaStatus {
        let status = json!({
            "name": "blocklist", "version": "0.1.0", "uptime_ms": 1, "ready": leader,
            "not_ready": [], "leader": leader, "followers": [], "insecure_modes": [],
        });
        (
            url.to_owned(),
            Ok((serde_json::from_value(status).unwrap(), None)),
        )
    }

    #[test]
    fn the_leader_of_all_addresses_is_reported() {
        assert_eq!(addresses(" http://a, ,http://b"), ["http://a", "http://b"]);
        let unreachable = |url: &str| (url.to_owned(), Err("refused".to_owned()));
        let urls = |all: Vec<ReplicaStatus>| {
            let (first, others) = choose_replica(all).unwrap();
            let (first_url, _) = first;
            let others: Vec<String> = others.into_iter().map(|(url, _)| url).collect();
            (first_url, others.join(" "))
        };
        let all = vec![
            unreachable("a"),
            replica_status("b", false),
            replica_status("c", true),
        ];
        assert_eq!(urls(all), ("c".to_owned(), "a b".to_owned()));
        let none_leads = vec![unreachable("a"), replica_status("b", false)];
        assert_eq!(urls(none_leads), ("b".to_owned(), "a".to_owned()));
        let none_answers = vec![unreachable("a"), unreachable("b")];
        assert_eq!(urls(none_answers), ("a".to_owned(), "b".to_owned()));
        assert!(choose_replica(Vec::new()).is_none());
    }

    #[test]
    fn work_younger_than_all_waits_is_not_examined() {
        let at = |ms| Timestamp::from_unix_ms(ms);
        let waiting_since = |ms| WaitingWork {
            work: "job_1".to_owned(),
            user: "ann".to_owned(),
            since: at(ms),
            waits_ms: 0,
            reason: None,
        };
        let five: Vec<WaitingWork> = [1, 2, 3, 4, 50].map(waiting_since).into();
        assert!(
            !has_longest_waits(&five, at(49)),
            "older work may have waited longer"
        );
        assert!(has_longest_waits(&five, at(50)));
        assert!(
            !has_longest_waits(&five[..4], at(99)),
            "the list is not full"
        );
    }

    #[test]
    fn a_clock_difference_follows_from_the_date_header() {
        let date = Timestamp::from_unix_ms(1_000_000);
        assert_eq!(ahead_ms(date, date.plus_ms(400), 200), 0);
        assert_eq!(ahead_ms(date, date.plus_ms(10_400), 200), -10_000);
        assert_eq!(
            ahead_ms(date.plus_ms(60_000), date.plus_ms(400), 200),
            60_000
        );
    }
}
