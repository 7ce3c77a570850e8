//! Traces as CSV files: one header line with the column names in any order, no quoting, and all
//! numbers are integers. Unknown columns are ignored.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::BufRead,
};

use super::{
    Job, Node, TaskRequest, Workload,
    record::{Column, Fault, InvalidLines, Record, TraceError},
};

/// Columns of `jobs.csv`.
const JOB_COLUMNS: [&str; 14] = [
    "job_id",
    "user",
    "class",
    "submit_s",
    "runtime_s",
    "limit_s",
    "tasks",
    "cpu_milli",
    "memory_mib",
    "gpu_count",
    "gpu_milli",
    "gpu_model",
    "pool",
    "exclusive",
];
/// Optional column of `jobs.csv`: the requested queue.
const QUEUE_COLUMN: &str = "queue";
/// Columns of `nodes.csv`.
const NODE_COLUMNS: [&str; 6] = [
    "node_id",
    "pool",
    "cpu_milli",
    "memory_mib",
    "gpu_count",
    "gpu_model",
];
/// Columns of a file of arrival orders.
const ARRIVAL_COLUMNS: [&str; 2] = ["seed", "job_id"];

/// Positions of [`JOB_COLUMNS`] in a file, in the same order.
type JobColumns = [Column; JOB_COLUMNS.len()];
type NodeColumns = [Column; NODE_COLUMNS.len()];
type ArrivalColumns = [Column; ARRIVAL_COLUMNS.len()];

/// Reads lines one by one and passes each to `take_record`. Passes invalid lines to
/// `handle_fault`.
fn read_table<const N: usize>(
    source: impl BufRead,
    columns: [&'static str; N],
    optional: Option<&'static str>,
    mut take_record: impl FnMut(&Record, &[Column; N], Option<Column>) -> Result<(), Fault>,
    mut handle_fault: impl FnMut(Fault) -> Result<(), Fault>,
) -> Result<(), TraceError> {
    let mut lines = source.split(b'\n').enumerate();
    let header = match lines.next() {
        None => return Err(TraceError::Empty),
        Some((line, header)) => header.map_err(|source| TraceError::Read { line, source })?,
    };
    let header = String::from_utf8_lossy(&header).into_owned();
    let names: Vec<&str> = header.trim_end_matches('\r').split(',').collect();
    let found_columns = find_columns(&names, columns)?;
    let optional_column = optional.and_then(|name| find_column(&names, name));
    for (line, bytes) in lines {
        let bytes = bytes.map_err(|source| TraceError::Read { line, source })?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches('\r');
        if text.is_empty() {
            continue;
        }
        let record = Record {
            number: line + 1,
            fields: text.split(',').collect(),
        };
        let result = if record.fields.len() == names.len() {
            take_record(&record, &found_columns, optional_column)
        } else {
            let (found, wanted) = (record.fields.len(), names.len());
            Err(Fault {
                line: record.number,
                column: None,
                message: format!("has {found} fields where the header has {wanted}"),
            })
        };
        if let Err(fault) = result {
            handle_fault(fault)?;
        }
    }
    Ok(())
}

fn find_column(names: &[&str], name: &'static str) -> Option<Column> {
    let index = names.iter().position(|candidate| *candidate == name)?;
    Some(Column { name, index })
}

fn find_columns<const N: usize>(
    names: &[&str],
    columns: [&'static str; N],
) -> Result<[Column; N], Fault> {
    let mut found = columns.map(|name| Column { name, index: 0 });
    for column in &mut found {
        *column = find_column(names, column.name).ok_or_else(|| Fault {
            line: 1,
            column: None,
            message: format!("the header names no column {:?}", column.name),
        })?;
    }
    Ok(found)
}

/// Reads `jobs.csv`, or a list of pods with the same columns.
pub fn read_jobs(
    source: impl BufRead,
    invalid_lines: InvalidLines,
) -> Result<Workload, TraceError> {
    let mut workload = Workload::default();
    let mut known_ids = BTreeSet::new();
    let mut skipped = Vec::new();
    let take_record = |record: &Record, columns: &JobColumns, queue: Option<Column>| {
        let [id, user, class, ..] = *columns;
        let job = parse_job(record, columns)?;
        if !known_ids.insert(job.id.clone()) {
            return Err(record.fault(id, format!("{:?} was there before", job.id)));
        }
        // Names are registered only now, so that those of an invalid line are not.
        let user = workload.users.index(record.text(user));
        let class = workload.classes.index(record.text(class));
        let queue = queue.map(|column| record.text(column)).unwrap_or_default();
        let queue = (!queue.is_empty()).then(|| workload.queues.index(queue));
        workload.jobs.push(Job {
            user,
            class,
            queue,
            ..job
        });
        Ok(())
    };
    read_table(
        source,
        JOB_COLUMNS,
        Some(QUEUE_COLUMN),
        take_record,
        |fault| match invalid_lines {
            InvalidLines::Refuse => Err(fault),
            InvalidLines::Skip => {
                skipped.push(fault);
                Ok(())
            }
        },
    )?;
    for fault in skipped {
        workload.skip(fault);
    }
    Ok(workload)
}

/// Parses a job. The caller sets its user, class and queue.
fn parse_job(record: &Record, columns: &JobColumns) -> Result<Job, Fault> {
    let [
        id,
        _user,
        _class,
        submit,
        runtime,
        limit,
        tasks,
        ..,
        exclusive,
    ] = *columns;
    let job = Job {
        id: record.required_text(id)?.to_owned(),
        user: usize::MAX,
        class: usize::MAX,
        queue: None,
        submit_s: record.parse_optional_u64(submit)?,
        runtime_s: record.parse_optional_u64(runtime)?,
        limit_s: record.parse_optional_u64(limit)?,
        tasks: record.parse_u64(tasks)?,
        request: parse_request(record, columns)?,
    };
    if job.tasks == 0 {
        return Err(record.fault(tasks, "is 0: a job has at least one task".into()));
    }
    if record.parse_u64(exclusive)? > 1 {
        return Err(record.fault(exclusive, "is neither 0 nor 1".into()));
    }
    Ok(job)
}

fn parse_request(record: &Record, columns: &JobColumns) -> Result<TaskRequest, Fault> {
    let [.., cpu, memory, gpus, milli, model, pool, exclusive] = *columns;
    let request = TaskRequest {
        cpu_milli: record.parse_u64(cpu)?,
        memory_mib: record.parse_u64(memory)?,
        gpu_count: record.parse_u64(gpus)?,
        gpu_milli: record.parse_u64(milli)?,
        gpu_models: split_models(record.text(model)),
        pool: Some(record.text(pool).to_owned()).filter(|pool| !pool.is_empty()),
        exclusive: record.parse_u64(exclusive)? == 1,
    };
    if request.gpu_milli > 1000 {
        return Err(record.fault(
            milli,
            format!("{} is more than a whole gpu", request.gpu_milli),
        ));
    }
    if (request.gpu_count == 0) != (request.gpu_milli == 0) {
        return Err(record.fault(
            milli,
            "goes with the number of gpus: both or neither".into(),
        ));
    }
    if request.gpu_milli < 1000 && request.gpu_count > 1 {
        return Err(record.fault(gpus, "a share of a gpu is of one gpu".into()));
    }
    Ok(request)
}

fn split_models(text: &str) -> Vec<String> {
    let models = text.split('|').filter(|model| !model.is_empty());
    models.map(str::to_owned).collect()
}

/// Reads `nodes.csv`. An invalid node is always an error, because a missing node would silently
/// make every figure wrong.
pub fn read_nodes(source: impl BufRead) -> Result<Vec<Node>, TraceError> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut known_ids = BTreeSet::new();
    let take_record = |record: &Record, columns: &NodeColumns, _: Option<Column>| {
        let [id, pool, cpu, memory, gpus, model] = *columns;
        let node = Node {
            id: record.required_text(id)?.to_owned(),
            pool: record.text(pool).to_owned(),
            cpu_milli: record.parse_u64(cpu)?,
            memory_mib: record.parse_u64(memory)?,
            gpu_count: record.parse_u64(gpus)?,
            gpu_model: record.text(model).to_owned(),
        };
        if !known_ids.insert(node.id.clone()) {
            return Err(record.fault(id, format!("{:?} was there before", node.id)));
        }
        nodes.push(node);
        Ok(())
    };
    read_table(source, NODE_COLUMNS, None, take_record, Err)?;
    Ok(nodes)
}

/// Reads arrival orders, which are lists of job ids by seed.
pub fn read_arrivals(source: impl BufRead) -> Result<BTreeMap<u64, Vec<String>>, TraceError> {
    let mut orders: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let take_record = |record: &Record, columns: &ArrivalColumns, _: Option<Column>| {
        let [seed, id] = *columns;
        let seed = record.parse_u64(seed)?;
        let id = record.required_text(id)?.to_owned();
        orders.entry(seed).or_default().push(id);
        Ok(())
    };
    read_table(source, ARRIVAL_COLUMNS, None, take_record, Err)?;
    Ok(orders)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "job_id,user,class,submit_s,runtime_s,limit_s,tasks,cpu_milli,memory_mib,\
                          gpu_count,gpu_milli,gpu_model,pool,exclusive,wait_s,status";

    fn read_job_lines(lines: &[&str], invalid_lines: InvalidLines) -> Result<Workload, TraceError> {
        let text = format!("{HEADER}\n{}\n", lines.join("\n"));
        read_jobs(text.as_bytes(), invalid_lines)
    }

    #[test]
    fn a_job_is_read_with_all_its_resources() {
        let line = "7,u1,LS,10,-1,60,4,1000,512,1,460,T4|A10,gpu,1,3,Running";
        let workload = read_job_lines(&[line], InvalidLines::Refuse).unwrap();
        let job = &workload.jobs[0];
        assert_eq!(
            (job.submit_s, job.runtime_s, job.limit_s),
            (Some(10), None, Some(60))
        );
        assert_eq!(job.request.gpu_models, ["T4", "A10"]);
        assert_eq!(job.request.pool.as_deref(), Some("gpu"));
        assert!(job.request.exclusive && job.request.gpu_milli == 460 && job.tasks == 4);
        assert_eq!(workload.users.name(job.user), "u1");
    }

    #[test]
    fn an_optional_column_names_the_requested_queue() {
        let lines = [
            "7,u1,LS,10,5,60,4,1000,512,0,0,,,0,root.a",
            "8,u1,LS,10,5,60,4,1,1,0,0,,,0,",
        ];
        let header = HEADER.replace("wait_s,status", "queue");
        let text = format!("{header}\n{}\n", lines.join("\n"));
        let workload = read_jobs(text.as_bytes(), InvalidLines::Refuse).unwrap();
        let queue_name = |job: usize| {
            workload.jobs[job]
                .queue
                .map(|queue| workload.queues.name(queue))
        };
        assert_eq!((queue_name(0), queue_name(1)), (Some("root.a"), None));
        let without_queue_column = read_job_lines(
            &["7,u1,LS,10,5,60,4,1000,512,0,0,,,0,3,Running"],
            InvalidLines::Refuse,
        );
        assert!(without_queue_column.unwrap().queues.is_empty());
    }

    #[test]
    fn an_error_names_the_invalid_line_and_column() {
        let good = "7,u1,LS,10,5,60,4,1000,512,0,0,,,0,3,Running";
        for (line, expected) in [
            (
                "8,u,c,x,5,60,1,1,1,0,0,,,0,0,",
                "line 3, column 4 (submit_s): \"x\" is neither",
            ),
            (
                "8,u,c,1,5,60,0,1,1,0,0,,,0,0,",
                "line 3, column 7 (tasks): is 0",
            ),
            (
                "8,u,c,1,5,60,1,1,1,2,500,,,0,0,",
                "line 3, column 10 (gpu_count): a share",
            ),
            (
                "8,u,c,1,5,60,1,1,1,1,1001,,,0,0,",
                "line 3, column 11 (gpu_milli): 1001 is more",
            ),
            (
                "8,u,c,1,5,60,1,1,1,1,0,,,0,0,",
                "line 3, column 11 (gpu_milli): goes with",
            ),
            (
                "8,u,c,1,5,60,1,1,1,0,0,,,2,0,",
                "line 3, column 14 (exclusive): is neither",
            ),
            (
                "7,u,c,1,5,60,1,1,1,0,0,,,0,0,",
                "line 3, column 1 (job_id): \"7\" was there",
            ),
            (
                ",u,c,1,5,60,1,1,1,0,0,,,0,0,",
                "line 3, column 1 (job_id): is empty",
            ),
            ("8,u,c", "line 3: has 3 fields where the header has 16"),
        ] {
            let fault = read_job_lines(&[good, line], InvalidLines::Refuse)
                .unwrap_err()
                .to_string();
            assert!(fault.starts_with(expected), "{fault}");
            let workload = read_job_lines(&[good, line], InvalidLines::Skip).unwrap();
            assert_eq!((workload.jobs.len(), workload.skipped), (1, 1));
            assert!(
                workload
                    .first_skipped
                    .unwrap()
                    .to_string()
                    .starts_with(expected)
            );
            assert_eq!(
                workload.users.len(),
                1,
                "the names of an invalid line are not registered"
            );
        }
    }

    #[test]
    fn a_header_may_reorder_columns_but_must_have_all() {
        let text = "cpu_milli,node_id,pool,gpu_model,gpu_count,memory_mib\n12,a,p,,0,4\n";
        let nodes = read_nodes(text.as_bytes()).unwrap();
        assert_eq!((nodes[0].cpu_milli, nodes[0].memory_mib), (12, 4));
        let text = "cpu_milli,node_id,pool,gpu_model,gpu_count\n12,a,p,,0\n";
        let fault = read_nodes(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(fault, "line 1: the header names no column \"memory_mib\"");
        assert!(matches!(read_nodes(&b""[..]), Err(TraceError::Empty)));
    }
}
