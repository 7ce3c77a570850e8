//! Validation of requests about pools. All faults are reported at once, each with a JSON pointer.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use axum::http::header::IF_MATCH;
use hayward_rm_scheduler_api::pools::{
    CONNECTION, OWNER_EPOCH, OwnerOrder, PoolMode, PoolOrder, SizeOrder, WorkerSpec,
};
use hayward_rm_scheduler_worker_pools::{
    Caller as PoolCaller, Connect, MAX_FOREIGN, Mode, SizeRequest,
};
use hayward_service::Caller;
use hayward_service::auth::Scope;
use hayward_service::http::idempotency::RequestDigest;
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::{Timestamp, UserName, WorkId};

use super::sender::Sender;
use crate::command::{CreatePool, PoolCall};
use crate::model::PoolDescription;
use crate::working_set::worker_pools::fresh_id;

/// Workers of one pool at most.
const MAX_WORKERS: u64 = 10_000;
/// Workers an owner may list: all of a pool, and foreign ones.
const MAX_LISTED: usize = 2 * MAX_FOREIGN;
/// Epochs are stored as signed numbers. A larger one would fence off every later owner.
const LAST_EPOCH: u64 = i64::MAX.unsigned_abs();
const MAX_TEXT_LENGTH: usize = 4 * 1_024;
const MAX_WORDS: usize = 4_096;
const MAX_VARIABLES: usize = 1_024;
const MAX_GRACE_MS: u64 = 3_600_000;

/// Collects faults.
struct Faults(Problem);

impl Faults {
    fn new(what: &str) -> Self {
        Self(Problem::new(Code::Invalid, format!("invalid {what}")))
    }

    fn check(&mut self, good: bool, pointer: &str, detail: &str) {
        if !good {
            self.0 = self.0.clone().at(pointer, detail);
        }
    }

    fn done(self) -> Result<(), Problem> {
        if self.0.errors.is_empty() {
            Ok(())
        } else {
            Err(self.0)
        }
    }
}

fn workers(size: i64) -> Option<u64> {
    u64::try_from(size).ok().filter(|size| *size <= MAX_WORKERS)
}

fn size_fault() -> String {
    format!("must be 0 to {MAX_WORKERS} workers")
}

/// Validates a request to create a pool.
pub fn create(
    order: PoolOrder,
    caller: &Caller,
    made_by: RequestDigest,
    made_from: RequestDigest,
) -> Result<CreatePool, Problem> {
    let user = order
        .user
        .clone()
        .or_else(|| UserName::new(caller.name.as_str()).ok());
    check_pool(&order, user.as_ref())?;
    let missing = || Problem::internal(anyhow::anyhow!("internal error: generated id is invalid"));
    Ok(CreatePool {
        about: PoolDescription {
            id: fresh_id().ok_or_else(missing)?,
            job_id: order.job_id,
            user: user.ok_or_else(missing)?,
            class: order.class,
            spec: order.worker_spec,
            // The ledger sets the time.
            created_at: Timestamp::default(),
            stopped_at: None,
            made_by,
            made_from,
        },
        mode: match order.mode {
            PoolMode::Standalone => Mode::Standalone,
            _ => Mode::Managed,
        },
        initial_size: workers(order.initial_size).unwrap_or(0),
        max_failed: order.max_failed,
    })
}

fn check_pool(order: &PoolOrder, user: Option<&UserName>) -> Result<(), Problem> {
    let mut faults = Faults::new("pool");
    let named = !order.job_id.trim().is_empty() && order.job_id.len() <= 256;
    faults.check(named, "/job_id", "must be a name of 1 to 256 bytes");
    let size = workers(order.initial_size);
    faults.check(size.is_some(), "/initial_size", &size_fault());
    let limit = order.max_failed.is_none_or(|limit| limit >= -1);
    faults.check(
        limit,
        "/max_failed",
        "must be -1 for any number, or not negative",
    );
    let standalone = order.mode == PoolMode::Standalone;
    faults.check(
        !order.reject_foreign,
        "/reject_foreign",
        "is reserved and must be false: workers the pool did not start are left alone",
    );
    faults.check(
        order.mode != PoolMode::Unknown,
        "/mode",
        "must be managed or standalone",
    );
    let empty = !standalone || order.initial_size == 0;
    faults.check(
        empty,
        "/initial_size",
        "must be 0 in standalone: nothing is started",
    );
    match &order.worker_spec {
        Some(spec) => check_spec(spec, &mut faults),
        None => faults.check(standalone, "/worker_spec", "is required in managed mode"),
    }
    faults.check(
        user.is_some(),
        "/user",
        "is required, because the token names no user",
    );
    faults.done()
}

fn check_spec(spec: &WorkerSpec, faults: &mut Faults) {
    let program = spec
        .command
        .first()
        .is_some_and(|program| !program.is_empty());
    faults.check(program, "/worker_spec/command", "names no program");
    let words = spec.command.len() <= MAX_WORDS && spec.command.iter().all(|word| fits(word));
    let long = "must be at most 4,096 words of at most 4,096 bytes, without NUL";
    faults.check(words, "/worker_spec/command", long);
    let name = |name: &str| !name.is_empty() && !name.contains('=') && fits(name);
    let named = |map: &BTreeMap<String, String>| {
        map.len() <= MAX_VARIABLES && map.iter().all(|(key, text)| name(key) && fits(text))
    };
    let variables = "must be at most 1,024 variables, their names without '='";
    faults.check(
        named(&spec.environment),
        "/worker_spec/environment",
        variables,
    );
    let folder = spec.working_directory.as_deref();
    let absolute = folder.is_none_or(|path| path.starts_with('/') && fits(path));
    faults.check(
        absolute,
        "/worker_spec/working_directory",
        "must be an absolute path",
    );
    let grace = spec.stop_grace_ms.is_none_or(|ms| ms <= MAX_GRACE_MS);
    faults.check(
        grace,
        "/worker_spec/stop_grace_ms",
        "must be at most an hour",
    );
    let least = spec.size.as_ref().is_none_or(|size| size.memory_bytes > 0);
    faults.check(
        least,
        "/worker_spec/size/memory_bytes",
        "must be more than 0",
    );
}

/// Validates a connection.
pub fn connect(order: OwnerOrder, headers: &HeaderMap) -> Result<Connect, Problem> {
    let mut faults = Faults::new("owner");
    let epoch = format!("must be at most {LAST_EPOCH}");
    faults.check(order.epoch <= LAST_EPOCH, "/epoch", &epoch);
    let long = "must be at most 4,096 bytes, without NUL: workers find it in HAYWARD_OWNER";
    faults.check(fits(&order.address), "/address", long);
    let many = format!("must be at most {MAX_LISTED} workers");
    faults.check(order.workers.len() <= MAX_LISTED, "/workers", &many);
    faults.done()?;
    Ok(Connect {
        epoch: order.epoch,
        address: order.address,
        workers: order.workers.into_iter().collect(),
        connection: number(headers, CONNECTION)?,
    })
}

fn fits(text: &str) -> bool {
    text.len() <= MAX_TEXT_LENGTH && !text.contains('\0')
}

/// Validates a change of size.
pub fn size(order: SizeOrder, headers: &HeaderMap) -> Result<SizeRequest, Problem> {
    let mut faults = Faults::new("size");
    let size = workers(order.size);
    faults.check(size.is_some(), "/size", &size_fault());
    let pointless = order.release || order.unwanted.is_empty();
    faults.check(pointless, "/unwanted", "is allowed with release only");
    faults.done()?;
    Ok(SizeRequest {
        size: size.unwrap_or(0),
        release: order.release,
        unwanted: order.unwanted,
        if_version: version(headers)?,
    })
}

/// The version the change was made from; `*` is any.
fn version(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    match headers.get(IF_MATCH) {
        Some(any) if any == "*" => Ok(None),
        _ => number(headers, IF_MATCH.as_str()),
    }
}

/// The caller: the owner with epoch and connection, or an operator.
pub fn from(sender: &Sender, pool: &WorkId) -> Result<PoolCaller, Problem> {
    let Sender { caller, headers } = sender;
    if !caller.owns(pool.as_str()) {
        caller.require(&[Scope::Operator, Scope::Owner(pool.to_string())])?;
        return Ok(PoolCaller::Operator);
    }
    let epoch = epoch(headers)?;
    // No connection has the number 0, so an owner without one has to connect.
    let connection = number(headers, CONNECTION)?.unwrap_or(0);
    Ok(PoolCaller::Owner { epoch, connection })
}

/// The pool of a change, with the caller.
pub fn call(sender: &Sender, pool: WorkId) -> Result<PoolCall, Problem> {
    let from = from(sender, &pool)?;
    Ok(PoolCall { pool, from })
}

/// The epoch, which an owner sends with every call.
pub fn epoch(headers: &HeaderMap) -> Result<u64, Problem> {
    number(headers, OWNER_EPOCH)?.ok_or_else(|| {
        let detail = "an owner has to send its epoch in X-Owner-Epoch";
        Problem::new(Code::BadRequest, detail).at("/header/x-owner-epoch", detail)
    })
}

/// A whole number in a header, with or without quotes.
pub fn number(headers: &HeaderMap, name: &str) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().trim_matches('"');
    text.parse().map(Some).map_err(|_| {
        let detail = format!("{name} is a whole number, as in 3");
        Problem::new(Code::BadRequest, detail.clone()).at(format!("/header/{name}"), detail)
    })
}

pub fn no_such_state() -> Problem {
    let detail = "must be LAUNCHING, STARTED, RETURNING or FOREIGN";
    Problem::new(Code::Invalid, "unknown state").at("/query/state", detail)
}
