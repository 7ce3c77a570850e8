//! Calls all services in parallel, with short timeouts.

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

use super::evaluate::{is_low, publisher};
use super::facts::{
    Ailment, Answer, Blocked, Disk, Facts, Lag, NodeFacts, Replica, ServiceFacts, Unwell, Waiting,
};
use crate::connection::pages::{self, Pages};
use crate::connection::{Role, Service, Session};
use crate::output::format::bytes;
use crate::output::{fault, read};

/// Timeout of a status request. A slower service counts as down.
const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout of a request for a list. Lists are long in a fleet of many thousands of nodes.
const LISTS: Duration = Duration::from_secs(15);
/// Maximum number of the longest waits in the result.
const WAITING: usize = 5;
/// Maximum number of work items, the oldest first, that are searched for the longest waits.
const EXAMINED: usize = 100;
const NODES: Pages = Pages {
    list: "nodes",
    next: "next_cursor",
};

pub async fn all(session: &Session) -> Facts {
    let at = SystemClock.now();
    let services = async {
        let [jobs, rounds, containers, nodes, blocks] =
            Service::ALL.map(|service| one(session, service));
        let facts = tokio::join!(jobs, rounds, containers, nodes, blocks);
        Vec::from(<[ServiceFacts; 5]>::from(facts))
    };
    let lists = async { tokio::join!(nodes(session), blocked(session), waiting(session, at)) };
    let (services, (nodes, blocked, waiting)) = tokio::join!(services, lists);
    Facts {
        at,
        services: with_lags(services),
        nodes,
        blocked,
        waiting,
        disk: disk(session),
    }
}

/// Address of a replica, and the status that it reports.
type ReplicaAnswer = (String, Answer<(Status, Option<i64>)>);

/// Reads the status of each address, and the other facts from the leader.
async fn one(session: &Session, service: Service) -> ServiceFacts {
    let list = session.url(service).unwrap_or_default();
    let mut tasks = tokio::task::JoinSet::new();
    for (at, url) in addresses(&list).into_iter().enumerate() {
        let client = session.client_at(&url, Role::Reader);
        tasks.spawn(async move { (at, url, status(client).await) });
    }
    let mut answers = tasks.join_all().await;
    answers.sort_by_key(|(at, ..)| *at);
    let answers = answers.into_iter().map(|(_, url, status)| (url, status));
    let ((url, status), others) = chosen(answers.collect()).unwrap_or_else(|| {
        let none = session.url(service).err();
        let none = none.map_or_else(|| "it has no address".to_owned(), |it| first_line(&it));
        ((list, Err(none)), Vec::new())
    });
    let (status, clock_ahead_ms) = match status {
        Ok((status, ahead)) => (Ok(status), ahead),
        Err(error) => (Err(error), None),
    };
    let invariants = match &status {
        Ok(_) => rules(session.client_at(&url, Role::Reader)).await,
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
/// Returns it and the other replicas.
fn chosen(mut all: Vec<ReplicaAnswer>) -> Option<(ReplicaAnswer, Vec<ReplicaAnswer>)> {
    let rank = |(_, answer): &ReplicaAnswer| match answer {
        Ok((status, _)) => (true, status.leader && status.ready, status.ready),
        Err(_) => (false, false, false),
    };
    let best = all.iter().map(rank).max()?;
    let at = all.iter().position(|it| rank(it) == best)?;
    let chosen = all.remove(at);
    Some((chosen, all))
}

/// Reads the status of a service, and how many milliseconds its clock is ahead of this machine.
async fn status(client: anyhow::Result<Client>) -> Answer<(Status, Option<i64>)> {
    let answer = async {
        let client = client?;
        let (sent_at, started) = (SystemClock.now(), Instant::now());
        let call = client.call(Method::GET, "/v1/status").timeout(PATIENCE);
        let answer = call.answer::<Status>().await?;
        let took = u64::try_from(started.elapsed().as_millis()).unwrap_or(0);
        let date = answer.date();
        Ok((answer.body, date.map(|date| ahead_ms(date, sent_at, took))))
    };
    answer.await.map_err(|error| first_line(&error))
}

async fn rules(client: anyhow::Result<Client>) -> Answer<Invariants> {
    let answer = async {
        let client = client?;
        anyhow::Ok(client.get_with_timeout("/v1/invariants", PATIENCE).await?)
    };
    answer.await.map_err(|error| first_line(&error))
}

/// Returns the milliseconds that the clock of a service is ahead. The date header has whole
/// seconds, so the middle of the second is used.
fn ahead_ms(date: Timestamp, sent_at: Timestamp, took_ms: u64) -> i64 {
    let here = sent_at.plus_ms(took_ms / 2);
    date.plus_ms(500).unix_ms() - here.unix_ms()
}

async fn get<T: DeserializeOwned>(session: &Session, service: Service, path: &str) -> Answer<T> {
    let answer = async {
        let client = session.client(service, Role::Reader)?;
        anyhow::Ok(client.get_with_timeout(path, PATIENCE).await?)
    };
    answer.await.map_err(|error| first_line(&error))
}

fn first_line(error: &anyhow::Error) -> String {
    let text = fault::describe(error);
    text.lines().next().unwrap_or_default().to_owned()
}

/// Adds the lag of each follower, which is the difference between its revision and the publisher's.
fn with_lags(services: Vec<ServiceFacts>) -> Vec<ServiceFacts> {
    let revision = |name: Option<&str>| {
        let mut services = services.iter();
        let found = services.find(|it| Some(it.name) == name)?;
        found.status.as_ref().ok()?.revision
    };
    let lags = |service: &ServiceFacts| {
        let followers = service.status.as_ref().map(|it| it.followers.as_slice());
        let followers = followers.unwrap_or_default().iter();
        let lag = |follower: &hayward_service::FollowerStatus| {
            let read = follower.cursor.as_deref().and_then(Cursor::parse);
            let there = revision(publisher(&follower.publication));
            let behind = read.zip(there).map(|(read, there)| {
                // The publisher may have answered before the follower read a newer revision.
                there.saturating_sub(read.revision)
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
    let with = services.into_iter().zip(all);
    with.map(|(service, lags)| ServiceFacts { lags, ..service })
        .collect()
}

async fn nodes(session: &Session) -> Answer<NodeFacts> {
    let answer = async {
        let client = session.client(Service::NodeStatus, Role::Reader)?;
        let all = pages::all(&client, "/v1/nodes", NODES);
        let mut all = tokio::time::timeout(LISTS, all).await??;
        let list = all.get_mut(NODES.list).map(serde_json::Value::take);
        read::<Vec<NodeView>>(list.unwrap_or_default())
    };
    let nodes: Vec<NodeView> = answer.await.map_err(|error| first_line(&error))?;
    Ok(counted(&nodes))
}

pub fn counted(nodes: &[NodeView]) -> NodeFacts {
    let mut facts = NodeFacts::default();
    for node in nodes {
        let entry = &node.entry;
        let (count, ailment) = match entry.health {
            Health::Healthy => (&mut facts.healthy, None),
            Health::Suspect => (&mut facts.suspect, Some(Ailment::Suspect)),
            Health::Lost => (&mut facts.lost, Some(Ailment::Lost)),
            Health::Quiesced | Health::Unknown => (&mut facts.quiesced, Some(Ailment::Quiesced)),
        };
        *count += 1;
        facts.off += u64::from(!entry.schedulable);
        facts.drains += u64::from(node.drain_state.is_some());
        let mut unwell = |what, detail: String| {
            facts.unwell.push(Unwell {
                node: entry.node.to_string(),
                what,
                detail,
            });
        };
        // If an operator has varied off this node, its absence is expected.
        let known = !entry.schedulable || node.drain_state.is_some();
        if node.rivals.is_empty() {
            if let Some(what) = ailment.filter(|_| !known) {
                unwell(what, entry.reason.clone());
            }
        } else {
            unwell(Ailment::Twins, node.rivals.join(", "));
        }
        if node.drain_state == Some(DrainState::Failed) {
            unwell(Ailment::DrainFailed, entry.reason.clone());
        }
        let (free, total) = (node.metrics.disk_free_bytes, node.metrics.disk_total_bytes);
        if entry.health == Health::Healthy && is_low(free, total) {
            unwell(
                Ailment::DiskLow,
                format!("{} of {} left", bytes(free), bytes(total)),
            );
        }
    }
    facts
}

async fn blocked(session: &Session) -> Answer<Vec<Blocked>> {
    let all: BlockOverview = get(session, Service::Blocklist, "/v1/blocklist").await?;
    let nodes = all.nodes.into_iter().map(|view| Blocked {
        node: view.item.identifier,
        cause: view.item.cause,
        automatic: view.item.automatic,
        on_trial: view.item.canary,
    });
    Ok(nodes.collect())
}

/// Returns the longest waits. A wait begins with the submission, or with the current verdict if
/// that is later.
async fn waiting(session: &Session, now: Timestamp) -> Answer<Vec<Waiting>> {
    let list = |route: &str| {
        let path = format!("/v1/{route}?state=waiting&limit={EXAMINED}");
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
    for view in all.into_iter().take(EXAMINED) {
        if is_enough(&longest, view.submitted_at) {
            break;
        }
        let since = verdict_since(session, &view).await;
        longest.push(waiting_entry(view, since, now));
        longest.sort_by_key(|it| it.since);
        longest.truncate(WAITING);
    }
    Ok(longest)
}

/// Returns true if work submitted at this time or later cannot wait longer than any of these.
fn is_enough(longest: &[Waiting], submitted_at: Timestamp) -> bool {
    let last = longest.get(WAITING - 1);
    last.is_some_and(|last| last.since <= submitted_at)
}

/// Returns the time since which the current verdict holds. Returns `None` without a verdict.
async fn verdict_since(session: &Session, view: &WorkView) -> Option<Timestamp> {
    let path = format!("{}/explain", pages::route_of(&view.id).ok()?);
    let explained = get::<Explanation>(session, Service::JobConverter, &path).await;
    explained.ok()?.since
}

fn waiting_entry(view: WorkView, verdict: Option<Timestamp>, now: Timestamp) -> Waiting {
    let since = verdict.map_or(view.submitted_at, |since| since.max(view.submitted_at));
    Waiting {
        work: view.id.to_string(),
        user: view.user.to_string(),
        since,
        waits_ms: now.ms_since(since),
        reason: view.reason,
    }
}

fn disk(session: &Session) -> Option<Disk> {
    let (free_bytes, total_bytes) = disk_space(session.state())?;
    Some(Disk {
        free_bytes,
        total_bytes,
    })
}

/// Returns the free and total bytes of the disk of a directory. Returns `None` if the directory is
/// missing.
pub fn disk_space(dir: &Path) -> Option<(u64, u64)> {
    let found = nix::sys::statvfs::statvfs(dir).ok()?;
    let block = found.fragment_size();
    let free = block.saturating_mul(found.blocks_available());
    Some((free, block.saturating_mul(found.blocks())))
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
    fn nodes_are_counted_and_unwell_nodes_are_named() {
        let low = json!({"disk_total_bytes": 100_u64 << 30, "disk_free_bytes": 1_u64 << 30});
        let facts = counted(&[
            node("n1", &json!({})),
            node("n2", &json!({"health": "suspect"})),
            node("n3", &json!({"health": "lost", "schedulable": false})),
            node("n4", &json!({"health": "quiesced", "rivals": ["a", "b"]})),
            node("n5", &json!({ "metrics": low })),
            node("n6", &json!({"drain_state": "failed"})),
        ]);
        assert_eq!((facts.healthy, facts.suspect, facts.lost), (3, 1, 1));
        assert_eq!((facts.quiesced, facts.off, facts.drains), (1, 1, 1));
        let named = facts.unwell.iter().map(|it| (it.node.as_str(), it.what));
        let expected = [
            ("n2", Ailment::Suspect),
            ("n4", Ailment::Twins),
            ("n5", Ailment::DiskLow),
            ("n6", Ailment::DrainFailed),
        ];
        assert_eq!(
            named.collect::<Vec<_>>(),
            expected,
            "n3 is off, and that is known"
        );
    }

    fn answers(url: &str, leader: bool) -> ReplicaAnswer {
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
        let away = |url: &str| (url.to_owned(), Err("refused".to_owned()));
        let urls = |all: Vec<ReplicaAnswer>| {
            let (first, others) = chosen(all).unwrap();
            let others: Vec<String> = others.into_iter().map(|it| it.0).collect();
            (first.0, others.join(" "))
        };
        let all = vec![away("a"), answers("b", false), answers("c", true)];
        assert_eq!(urls(all), ("c".to_owned(), "a b".to_owned()));
        let none_leads = vec![away("a"), answers("b", false)];
        assert_eq!(urls(none_leads), ("b".to_owned(), "a".to_owned()));
        assert_eq!(urls(vec![away("a"), away("b")]).0, "a");
        assert!(chosen(Vec::new()).is_none());
    }

    #[test]
    fn work_younger_than_all_waits_is_not_examined() {
        let at = |ms| Timestamp::from_unix_ms(ms);
        let waits = |ms| Waiting {
            work: "job_1".to_owned(),
            user: "ann".to_owned(),
            since: at(ms),
            waits_ms: 0,
            reason: None,
        };
        let five: Vec<Waiting> = [1, 2, 3, 4, 50].map(waits).into();
        assert!(!is_enough(&five, at(49)), "it may have waited for longer");
        assert!(is_enough(&five, at(50)));
        assert!(!is_enough(&five[..4], at(99)), "there is room for it");
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
