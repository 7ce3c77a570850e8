//! Validates requests to worker pools, and converts them to commands. All faults of a request are
//! reported at once, each with a JSON pointer.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use axum::http::header::IF_MATCH;
use hayward_rm_scheduler_api::worker_pools::{
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

use super::caller_headers::CallerWithHeaders;
use crate::command::{CreatePool, PoolCall};
use crate::model::PoolDescription;
use crate::working_set::worker_pools::new_pool_id;

/// Maximum number of workers of a pool.
const MAX_WORKERS: u64 = 10_000;
/// Maximum number of workers that an owner may list: workers of the pool, and foreign workers. A
/// foreign worker was not started for the pool.
const MAX_LISTED: usize = 2 * MAX_FOREIGN;
/// Maximum epoch, because epochs are stored as signed numbers.
const MAX_EPOCH: u64 = i64::MAX.unsigned_abs();
/// Maximum number of bytes of the name of a job.
const MAX_JOB_ID_LENGTH: usize = 256;
/// Maximum number of bytes of an argument, a variable, a path or an address.
const MAX_TEXT_LENGTH: usize = 4 * 1_024;
const MAX_ARGUMENTS: usize = 4_096;
const MAX_VARIABLES: usize = 1_024;
/// Maximum grace period of a worker: one hour.
const MAX_GRACE_MS: u64 = 3_600_000;

/// Collects the faults of one request.
struct Faults(Problem);

impl Faults {
    /// `request_kind` is part of the message.
    fn new(request_kind: &str) -> Self {
        Self(Problem::new(
            Code::Invalid,
            format!("invalid {request_kind}"),
        ))
    }

    fn check(&mut self, is_valid: bool, pointer: &str, detail: &str) {
        if !is_valid {
            self.0 = self.0.clone().at(pointer, detail);
        }
    }

    fn into_result(self) -> Result<(), Problem> {
        if self.0.errors.is_empty() {
            Ok(())
        } else {
            Err(self.0)
        }
    }
}

fn valid_size(size: i64) -> Option<u64> {
    u64::try_from(size).ok().filter(|size| *size <= MAX_WORKERS)
}

fn size_range() -> String {
    format!("must be 0 to {MAX_WORKERS} workers")
}

/// Validates a request to create a pool.
pub fn validate_pool(
    request: PoolOrder,
    caller: &Caller,
    key_digest: RequestDigest,
    request_digest: RequestDigest,
) -> Result<CreatePool, Problem> {
    let user = request
        .user
        .clone()
        .or_else(|| UserName::new(caller.name.as_str()).ok());
    check_pool_order(&request, user.as_ref())?;
    let internal_error =
        || Problem::internal(anyhow::anyhow!("internal error: generated id is invalid"));
    Ok(CreatePool {
        description: PoolDescription {
            id: new_pool_id().ok_or_else(internal_error)?,
            job_id: request.job_id,
            user: user.ok_or_else(internal_error)?,
            class: request.class,
            spec: request.worker_spec,
            // The working set sets the time.
            created_at: Timestamp::default(),
            stopped_at: None,
            key_digest,
            request_digest,
        },
        mode: match request.mode {
            PoolMode::Standalone => Mode::Standalone,
            _ => Mode::Managed,
        },
        initial_size: valid_size(request.initial_size).unwrap_or(0),
        max_failed: request.max_failed,
    })
}

fn check_pool_order(request: &PoolOrder, user: Option<&UserName>) -> Result<(), Problem> {
    let mut faults = Faults::new("pool");
    let has_name = !request.job_id.trim().is_empty() && request.job_id.len() <= MAX_JOB_ID_LENGTH;
    faults.check(has_name, "/job_id", "must be a name of 1 to 256 bytes");
    let size = valid_size(request.initial_size);
    faults.check(size.is_some(), "/initial_size", &size_range());
    let valid_limit = request.max_failed.is_none_or(|limit| limit >= -1);
    faults.check(
        valid_limit,
        "/max_failed",
        "must be -1 for any number, or not negative",
    );
    let standalone = request.mode == PoolMode::Standalone;
    faults.check(
        !request.reject_foreign,
        "/reject_foreign",
        "is reserved and must be false: workers the pool did not start are left alone",
    );
    faults.check(
        request.mode != PoolMode::Unknown,
        "/mode",
        "must be managed or standalone",
    );
    let valid_initial_size = !standalone || request.initial_size == 0;
    faults.check(
        valid_initial_size,
        "/initial_size",
        "must be 0 in standalone: nothing is started",
    );
    match &request.worker_spec {
        Some(spec) => check_spec(spec, &mut faults),
        None => faults.check(standalone, "/worker_spec", "is required in managed mode"),
    }
    faults.check(
        user.is_some(),
        "/user",
        "is required, because the token names no user",
    );
    faults.into_result()
}

fn check_spec(spec: &WorkerSpec, faults: &mut Faults) {
    let has_program = spec
        .command
        .first()
        .is_some_and(|program| !program.is_empty());
    faults.check(has_program, "/worker_spec/command", "names no program");
    let valid_arguments = spec.command.len() <= MAX_ARGUMENTS
        && spec.command.iter().all(|argument| is_valid_text(argument));
    let detail = "must be at most 4,096 words of at most 4,096 bytes, without NUL";
    faults.check(valid_arguments, "/worker_spec/command", detail);
    let is_valid_name = |name: &str| !name.is_empty() && !name.contains('=') && is_valid_text(name);
    let are_valid = |map: &BTreeMap<String, String>| {
        map.len() <= MAX_VARIABLES
            && map
                .iter()
                .all(|(key, text)| is_valid_name(key) && is_valid_text(text))
    };
    let detail = "must be at most 1,024 variables, their names without '='";
    faults.check(
        are_valid(&spec.environment),
        "/worker_spec/environment",
        detail,
    );
    let directory = spec.working_directory.as_deref();
    let is_absolute = directory.is_none_or(|path| path.starts_with('/') && is_valid_text(path));
    faults.check(
        is_absolute,
        "/worker_spec/working_directory",
        "must be an absolute path",
    );
    let valid_grace = spec.stop_grace_ms.is_none_or(|ms| ms <= MAX_GRACE_MS);
    faults.check(
        valid_grace,
        "/worker_spec/stop_grace_ms",
        "must be at most an hour",
    );
    let has_memory = spec.size.as_ref().is_none_or(|size| size.memory_bytes > 0);
    faults.check(
        has_memory,
        "/worker_spec/size/memory_bytes",
        "must be more than 0",
    );
}

/// Validates the request of an owner to connect.
pub fn validate_connect(request: OwnerOrder, headers: &HeaderMap) -> Result<Connect, Problem> {
    let mut faults = Faults::new("owner");
    let detail = format!("must be at most {MAX_EPOCH}");
    faults.check(request.epoch <= MAX_EPOCH, "/epoch", &detail);
    let detail = "must be at most 4,096 bytes, without NUL: workers find it in HAYWARD_OWNER";
    faults.check(is_valid_text(&request.address), "/address", detail);
    let detail = format!("must be at most {MAX_LISTED} workers");
    faults.check(request.workers.len() <= MAX_LISTED, "/workers", &detail);
    faults.into_result()?;
    Ok(Connect {
        epoch: request.epoch,
        address: request.address,
        workers: request.workers.into_iter().collect(),
        connection: number_header(headers, CONNECTION)?,
    })
}

fn is_valid_text(text: &str) -> bool {
    text.len() <= MAX_TEXT_LENGTH && !text.contains('\0')
}

/// Validates a change of size.
pub fn validate_size(request: SizeOrder, headers: &HeaderMap) -> Result<SizeRequest, Problem> {
    let mut faults = Faults::new("size");
    let size = valid_size(request.size);
    faults.check(size.is_some(), "/size", &size_range());
    let valid_unwanted = request.release || request.unwanted.is_empty();
    faults.check(valid_unwanted, "/unwanted", "is allowed with release only");
    faults.into_result()?;
    Ok(SizeRequest {
        size: size.unwrap_or(0),
        release: request.release,
        unwanted: request.unwanted,
        if_version: if_match_version(headers)?,
    })
}

/// Returns the version that the change is based on. Returns `None` if any version is allowed, by
/// `*` or by the absence of the header.
fn if_match_version(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    match headers.get(IF_MATCH) {
        Some(any) if any == "*" => Ok(None),
        _ => number_header(headers, IF_MATCH.as_str()),
    }
}

/// Returns the caller: an owner with its epoch and connection, or an operator.
pub fn pool_caller(
    caller_with_headers: &CallerWithHeaders,
    pool: &WorkId,
) -> Result<PoolCaller, Problem> {
    let CallerWithHeaders { caller, headers } = caller_with_headers;
    if !caller.owns(pool.as_str()) {
        caller.require(&[Scope::Operator, Scope::Owner(pool.to_string())])?;
        return Ok(PoolCaller::Operator);
    }
    let epoch = owner_epoch(headers)?;
    // No connection has the number 0, so the call of an owner without a connection is refused.
    let connection = number_header(headers, CONNECTION)?.unwrap_or(0);
    Ok(PoolCaller::Owner { epoch, connection })
}

/// Returns the pool and the caller of a change.
pub fn pool_call(
    caller_with_headers: &CallerWithHeaders,
    pool: WorkId,
) -> Result<PoolCall, Problem> {
    let caller = pool_caller(caller_with_headers, &pool)?;
    Ok(PoolCall { pool, caller })
}

/// Returns the epoch, which an owner sends with every call.
pub fn owner_epoch(headers: &HeaderMap) -> Result<u64, Problem> {
    number_header(headers, OWNER_EPOCH)?.ok_or_else(|| {
        let detail = "an owner has to send its epoch in X-Owner-Epoch";
        Problem::new(Code::BadRequest, detail).at("/header/x-owner-epoch", detail)
    })
}

/// Returns a whole number from a header, with or without quotes.
pub fn number_header(headers: &HeaderMap, name: &str) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().trim_matches('"');
    text.parse().map(Some).map_err(|_| {
        let detail = format!("{name} is a whole number, as in 3");
        Problem::new(Code::BadRequest, detail.clone()).at(format!("/header/{name}"), detail)
    })
}

/// Returns the problem for an unknown state of workers in a query.
pub fn unknown_state() -> Problem {
    let detail = "must be LAUNCHING, STARTED, RETURNING or FOREIGN";
    Problem::new(Code::Invalid, "unknown state").at("/query/state", detail)
}
