//! The Standard Workload Format of the Parallel Workloads Archive: 18 fields separated by blanks,
//! comments after semicolons. A processor becomes a task with one core, and its measured memory
//! becomes the memory of the task.

use std::{collections::BTreeSet, io::BufRead};

use super::{
    Job, Need, Workload,
    field::{Bad, Column, Fault, Record, TraceError},
};

const FIELDS: usize = 18;
const ID: Column = column("job number", 1);
const SUBMIT: Column = column("submit time", 2);
const RUNTIME: Column = column("run time", 4);
const ALLOCATED: Column = column("allocated processors", 5);
const MEMORY: Column = column("used memory", 7);
const REQUESTED: Column = column("requested processors", 8);
const LIMIT: Column = column("requested time", 9);
const USER: Column = column("user", 12);
const QUEUE: Column = column("queue", 15);

const fn column(name: &'static str, number: usize) -> Column {
    Column {
        name,
        at: number - 1,
    }
}

pub fn read_swf(source: impl BufRead, bad: Bad) -> Result<Workload, TraceError> {
    let mut workload = Workload::default();
    let mut seen = BTreeSet::new();
    for (line, bytes) in source.split(b'\n').enumerate() {
        let bytes = bytes.map_err(|source| TraceError::Read { line, source })?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        if let Some(comment) = text.strip_prefix(';') {
            remark(comment, &mut workload);
            continue;
        }
        if text.is_empty() {
            continue;
        }
        let read = Record {
            number: line + 1,
            fields: text.split_whitespace().collect(),
        };
        match record(&read, &mut workload, &mut seen) {
            Ok(job) => workload.jobs.push(job),
            Err(fault) if bad == Bad::Skip => workload.skip(fault),
            Err(fault) => return Err(fault.into()),
        }
    }
    Ok(workload)
}

/// Parses a comment. `; MaxProcs: 100` is the size of the source system.
fn remark(comment: &str, workload: &mut Workload) {
    if let Some((name, value)) = comment.split_once(':')
        && name.trim() == "MaxProcs"
        && let Some(Ok(number)) = value.split_whitespace().next().map(str::parse)
    {
        workload.processors = Some(number);
    }
}

fn record(
    line: &Record,
    workload: &mut Workload,
    seen: &mut BTreeSet<String>,
) -> Result<Job, Fault> {
    if line.fields.len() != FIELDS {
        let found = line.fields.len();
        return Err(Fault {
            line: line.number,
            column: None,
            what: format!("has {found} fields where a record has {FIELDS}"),
        });
    }
    let kib = amount(line, MEMORY)?.unwrap_or(0);
    let tasks = match amount(line, REQUESTED)?.filter(|tasks| *tasks > 0) {
        Some(tasks) => tasks,
        None => amount(line, ALLOCATED)?.unwrap_or(0),
    };
    if tasks == 0 {
        return Err(line.fault(
            REQUESTED,
            "no processors, neither asked for nor given".into(),
        ));
    }
    let id = line.name(ID)?.to_owned();
    let read = Job {
        id: id.clone(),
        user: 0,
        class: 0,
        queue: None,
        submit_s: amount(line, SUBMIT)?,
        // A record without run time is a job that was cancelled in the queue.
        runtime_s: amount(line, RUNTIME)?.filter(|seconds| *seconds > 0),
        limit_s: amount(line, LIMIT)?.filter(|seconds| *seconds > 0),
        tasks,
        need: Need {
            cpu_milli: 1000,
            memory_mib: kib.div_ceil(1024),
            ..Need::default()
        },
    };
    let named = |column, letter| {
        let number = amount(line, column)?;
        Ok::<_, Fault>(number.map_or_else(String::new, |number| format!("{letter}{number}")))
    };
    let (user, queue) = (named(USER, 'u')?, named(QUEUE, 'q')?);
    if !seen.insert(id) {
        return Err(line.fault(ID, format!("{:?} was there before", read.id)));
    }
    Ok(Job {
        user: workload.users.index(&user),
        class: workload.classes.index(&queue),
        queue: (!queue.is_empty()).then(|| workload.queues.index(&queue)),
        ..read
    })
}

/// Parses an amount. Some logs write fractions, so a part of a second or of a KiB is rounded up.
fn amount(line: &Record, column: Column) -> Result<Option<u64>, Fault> {
    let Some((whole, fraction)) = line.text(column).split_once('.') else {
        return line.maybe(column);
    };
    let broken = || line.fault(column, format!("{:?} is not an amount", line.text(column)));
    if fraction.is_empty() || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(broken());
    }
    if whole == "-1" {
        return Ok(None);
    }
    let whole: u64 = whole.parse().map_err(|_| broken())?;
    let more = fraction.bytes().any(|digit| digit != b'0');
    Ok(Some(whole.saturating_add(u64::from(more))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "; Computer: SP2\n; MaxProcs: 100 (of 128)\n\n";

    fn swf(records: &str, bad: Bad) -> Result<Workload, TraceError> {
        read_swf(format!("{HEAD}{records}").as_bytes(), bad)
    }

    #[test]
    fn a_record_becomes_a_job_of_single_cores() {
        let record = "  1 5 0 60 4 -1 2049 -1 120 -1 1 3 1 -1 0 -1 -1 -1\n";
        let workload = swf(record, Bad::Refuse).unwrap();
        assert_eq!(workload.processors, Some(100));
        let job = &workload.jobs[0];
        assert_eq!(
            (job.tasks, job.need.cpu_milli, job.need.memory_mib),
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
    fn a_fraction_counts_as_a_whole() {
        let record = "1 5 0 60.0 4 3.7 1.5 4 120 -1 1 3 1 -1 0 -1 -1 -1\n";
        let job = &swf(record, Bad::Refuse).unwrap().jobs[0];
        assert_eq!((job.runtime_s, job.need.memory_mib), (Some(60), 1));
    }

    #[test]
    fn a_broken_record_is_named() {
        let cut = swf("1 5 0 60\n", Bad::Refuse).unwrap_err().to_string();
        assert_eq!(cut, "line 4: has 4 fields where a record has 18");
        let word = "1 five 0 60 4 -1 0 4 120 -1 1 3 1 -1 0 -1 -1 -1\n";
        let fault = swf(word, Bad::Refuse).unwrap_err().to_string();
        assert!(
            fault.starts_with("line 4, column 2 (submit time): \"five\""),
            "{fault}"
        );
        assert_eq!(swf(word, Bad::Skip).unwrap().skipped, 1);
        let none = "1 5 0 60 0 -1 0 -1 120 -1 1 3 1 -1 0 -1 -1 -1\n";
        assert!(
            swf(none, Bad::Refuse)
                .unwrap_err()
                .to_string()
                .contains("no processors")
        );
    }
}
