//! The Standard Workload Format of the Parallel Workloads Archive: 18 fields separated by blanks,
//! comments after semicolons. Each processor of a job becomes a task with one core. The used memory
//! per processor becomes the memory of the task.

use std::{collections::BTreeSet, io::BufRead};

use super::{
    Job, TaskRequest, Workload,
    record::{Column, Fault, InvalidLines, Record, TraceError},
};

const FIELD_COUNT: usize = 18;
const JOB_ID: Column = column("job number", 1);
const SUBMIT_TIME: Column = column("submit time", 2);
const RUN_TIME: Column = column("run time", 4);
const ALLOCATED_PROCESSORS: Column = column("allocated processors", 5);
const USED_MEMORY: Column = column("used memory", 7);
const REQUESTED_PROCESSORS: Column = column("requested processors", 8);
const REQUESTED_TIME: Column = column("requested time", 9);
const USER: Column = column("user", 12);
const QUEUE: Column = column("queue", 15);

const fn column(name: &'static str, number: usize) -> Column {
    Column {
        name,
        index: number - 1,
    }
}

/// Reads a trace. Comments in the header may name the size of the source system.
pub fn read_swf(source: impl BufRead, invalid_lines: InvalidLines) -> Result<Workload, TraceError> {
    let mut workload = Workload::default();
    let mut known_ids = BTreeSet::new();
    for (line, bytes) in source.split(b'\n').enumerate() {
        let bytes = bytes.map_err(|source| TraceError::Read { line, source })?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        if let Some(comment) = text.strip_prefix(';') {
            read_comment(comment, &mut workload);
            continue;
        }
        if text.is_empty() {
            continue;
        }
        let record = Record {
            number: line + 1,
            fields: text.split_whitespace().collect(),
        };
        match parse_job(&record, &mut workload, &mut known_ids) {
            Ok(job) => workload.jobs.push(job),
            Err(fault) if invalid_lines == InvalidLines::Skip => workload.skip(fault),
            Err(fault) => return Err(fault.into()),
        }
    }
    Ok(workload)
}

/// Parses a comment. `; MaxProcs: 100` is the size of the source system.
fn read_comment(comment: &str, workload: &mut Workload) {
    if let Some((name, value)) = comment.split_once(':')
        && name.trim() == "MaxProcs"
        && let Some(Ok(number)) = value.split_whitespace().next().map(str::parse)
    {
        workload.processors = Some(number);
    }
}

fn parse_job(
    record: &Record,
    workload: &mut Workload,
    known_ids: &mut BTreeSet<String>,
) -> Result<Job, Fault> {
    if record.fields.len() != FIELD_COUNT {
        let found = record.fields.len();
        return Err(Fault {
            line: record.number,
            column: None,
            message: format!("has {found} fields where a record has {FIELD_COUNT}"),
        });
    }
    let memory_kib = parse_amount(record, USED_MEMORY)?.unwrap_or(0);
    let tasks = match parse_amount(record, REQUESTED_PROCESSORS)?.filter(|tasks| *tasks > 0) {
        Some(tasks) => tasks,
        None => parse_amount(record, ALLOCATED_PROCESSORS)?.unwrap_or(0),
    };
    if tasks == 0 {
        return Err(record.fault(
            REQUESTED_PROCESSORS,
            "no processors, neither asked for nor given".into(),
        ));
    }
    let id = record.required_text(JOB_ID)?.to_owned();
    let job = Job {
        id: id.clone(),
        user: 0,
        class: 0,
        queue: None,
        submit_s: parse_amount(record, SUBMIT_TIME)?,
        // A record without run time is a job that was cancelled in the queue.
        runtime_s: parse_amount(record, RUN_TIME)?.filter(|seconds| *seconds > 0),
        limit_s: parse_amount(record, REQUESTED_TIME)?.filter(|seconds| *seconds > 0),
        tasks,
        request: TaskRequest {
            cpu_milli: 1000,
            memory_mib: memory_kib.div_ceil(1024),
            ..TaskRequest::default()
        },
    };
    let prefixed_name = |column, prefix| {
        let number = parse_amount(record, column)?;
        Ok::<_, Fault>(number.map_or_else(String::new, |number| format!("{prefix}{number}")))
    };
    let (user, queue) = (prefixed_name(USER, 'u')?, prefixed_name(QUEUE, 'q')?);
    if !known_ids.insert(id) {
        return Err(record.fault(JOB_ID, format!("{:?} was there before", job.id)));
    }
    Ok(Job {
        user: workload.users.index(&user),
        class: workload.classes.index(&queue),
        queue: (!queue.is_empty()).then(|| workload.queues.index(&queue)),
        ..job
    })
}

/// Parses an amount. Some logs write fractions, so a part of a second or of a KiB is rounded up.
fn parse_amount(record: &Record, column: Column) -> Result<Option<u64>, Fault> {
    let Some((integer, fraction)) = record.text(column).split_once('.') else {
        return record.parse_optional_u64(column);
    };
    let invalid_amount = || {
        record.fault(
            column,
            format!("{:?} is not an amount", record.text(column)),
        )
    };
    if fraction.is_empty() || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(invalid_amount());
    }
    if integer == "-1" {
        return Ok(None);
    }
    let integer: u64 = integer.parse().map_err(|_| invalid_amount())?;
    let has_fraction = fraction.bytes().any(|digit| digit != b'0');
    Ok(Some(integer.saturating_add(u64::from(has_fraction))))
}

#[cfg(test)]
mod tests {
    use super::*;

    // The fields of a record are: job number, submit time, wait time, run time, allocated
    // processors, used CPU time, used memory, requested processors, requested time, requested
    // memory, status, user, group, program, queue, partition, preceding job, think time. -1 means
    // not known.
    const HEADER: &str = "; Computer: SP2\n; MaxProcs: 100 (of 128)\n\n";

    fn read_records(records: &str, invalid_lines: InvalidLines) -> Result<Workload, TraceError> {
        read_swf(format!("{HEADER}{records}").as_bytes(), invalid_lines)
    }

    #[test]
    fn a_record_becomes_a_job_of_single_cores() {
        let record = "  1 5 0 60 4 -1 2049 -1 120 -1 1 3 1 -1 0 -1 -1 -1\n";
        let workload = read_records(record, InvalidLines::Refuse).unwrap();
        assert_eq!(workload.processors, Some(100));
        let job = &workload.jobs[0];
        assert_eq!(
            (job.tasks, job.request.cpu_milli, job.request.memory_mib),
            (4, 1000, 3)
        );
        assert_eq!(
            (job.submit_s, job.run_s(), job.limit_s),
            (Some(5), Some(60), Some(120))
        );
        assert_eq!(workload.users.name(job.user), "u3");
        assert_eq!(workload.classes.name(job.class), "q0");
    }

    #[test]
    fn a_fractional_amount_is_rounded_up() {
        let record = "1 5 0 60.0 4 3.7 1.5 4 120 -1 1 3 1 -1 0 -1 -1 -1\n";
        let job = &read_records(record, InvalidLines::Refuse).unwrap().jobs[0];
        assert_eq!((job.runtime_s, job.request.memory_mib), (Some(60), 1));
    }

    #[test]
    fn an_error_names_the_invalid_line_and_column() {
        let truncated = read_records("1 5 0 60\n", InvalidLines::Refuse)
            .unwrap_err()
            .to_string();
        assert_eq!(truncated, "line 4: has 4 fields where a record has 18");
        let invalid_number = "1 five 0 60 4 -1 0 4 120 -1 1 3 1 -1 0 -1 -1 -1\n";
        let fault = read_records(invalid_number, InvalidLines::Refuse)
            .unwrap_err()
            .to_string();
        assert!(
            fault.starts_with("line 4, column 2 (submit time): \"five\""),
            "{fault}"
        );
        assert_eq!(
            read_records(invalid_number, InvalidLines::Skip)
                .unwrap()
                .skipped,
            1
        );
        let without_processors = "1 5 0 60 0 -1 0 -1 120 -1 1 3 1 -1 0 -1 -1 -1\n";
        assert!(
            read_records(without_processors, InvalidLines::Refuse)
                .unwrap_err()
                .to_string()
                .contains("no processors")
        );
    }
}
