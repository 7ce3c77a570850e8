//! The neutral CSV format: one header line with the column names in any order, no quoting, only
//! integers. Unknown columns are ignored.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::BufRead,
};

use super::{
    Job, Need, Node, Workload,
    field::{Bad, Column, Fault, Record, TraceError},
};

/// Columns of `jobs.csv`.
const JOB: [&str; 14] = [
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
const QUEUE: &str = "queue";
/// Columns of `nodes.csv`.
const NODE: [&str; 6] = [
    "node_id",
    "pool",
    "cpu_milli",
    "memory_mib",
    "gpu_count",
    "gpu_model",
];
/// Columns of a list of arrivals.
const ARRIVAL: [&str; 2] = ["seed", "job_id"];

/// Reads lines one by one and passes each to `take`. Passes invalid lines to `skip`.
fn read_table<const N: usize>(
    source: impl BufRead,
    columns: [&'static str; N],
    optional: Option<&'static str>,
    mut take: impl FnMut(&Record, &[Column; N], Option<Column>) -> Result<(), Fault>,
    mut skip: impl FnMut(Fault) -> Result<(), Fault>,
) -> Result<(), TraceError> {
    let mut lines = source.split(b'\n').enumerate();
    let header = match lines.next() {
        None => return Err(TraceError::Empty),
        Some((line, header)) => header.map_err(|source| TraceError::Read { line, source })?,
    };
    let header = String::from_utf8_lossy(&header).into_owned();
    let names: Vec<&str> = header.trim_end_matches('\r').split(',').collect();
    let places = places(&names, columns)?;
    let more = optional.and_then(|name| column(&names, name));
    for (line, bytes) in lines {
        let bytes = bytes.map_err(|source| TraceError::Read { line, source })?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches('\r');
        if text.is_empty() {
            continue;
        }
        let read = Record {
            number: line + 1,
            fields: text.split(',').collect(),
        };
        let taken = if read.fields.len() == names.len() {
            take(&read, &places, more)
        } else {
            let (found, wanted) = (read.fields.len(), names.len());
            Err(Fault {
                line: read.number,
                column: None,
                what: format!("has {found} fields where the header has {wanted}"),
            })
        };
        if let Err(fault) = taken {
            skip(fault)?;
        }
    }
    Ok(())
}

fn column(names: &[&str], name: &'static str) -> Option<Column> {
    let at = names.iter().position(|it| *it == name)?;
    Some(Column { name, at })
}

fn places<const N: usize>(
    names: &[&str],
    columns: [&'static str; N],
) -> Result<[Column; N], Fault> {
    let mut places = columns.map(|name| Column { name, at: 0 });
    for place in &mut places {
        *place = column(names, place.name).ok_or_else(|| Fault {
            line: 1,
            column: None,
            what: format!("the header names no column {:?}", place.name),
        })?;
    }
    Ok(places)
}

/// Reads `jobs.csv` or a pod list.
pub fn read_jobs(source: impl BufRead, bad: Bad) -> Result<Workload, TraceError> {
    let mut workload = Workload::default();
    let mut seen = BTreeSet::new();
    let mut skipped = Vec::new();
    let take = |line: &Record, columns: &[Column; 14], queue: Option<Column>| {
        let job = job(line, columns)?;
        if !seen.insert(job.id.clone()) {
            return Err(line.fault(columns[0], format!("{:?} was there before", job.id)));
        }
        // Names are registered only now, so that those of an invalid line are not.
        let user = workload.users.index(line.text(columns[1]));
        let class = workload.classes.index(line.text(columns[2]));
        let queue = queue.map(|column| line.text(column)).unwrap_or_default();
        let queue = (!queue.is_empty()).then(|| workload.queues.index(queue));
        workload.jobs.push(Job {
            user,
            class,
            queue,
            ..job
        });
        Ok(())
    };
    read_table(source, JOB, Some(QUEUE), take, |fault| match bad {
        Bad::Refuse => Err(fault),
        Bad::Skip => {
            skipped.push(fault);
            Ok(())
        }
    })?;
    for fault in skipped {
        workload.skip(fault);
    }
    Ok(workload)
}

/// Parses a job. The caller registers its user and class.
fn job(line: &Record, columns: &[Column; 14]) -> Result<Job, Fault> {
    let [id, _, _, submit, runtime, limit, tasks, .., exclusive] = *columns;
    let read = Job {
        id: line.name(id)?.to_owned(),
        user: usize::MAX,
        class: usize::MAX,
        queue: None,
        submit_s: line.maybe(submit)?,
        runtime_s: line.maybe(runtime)?,
        limit_s: line.maybe(limit)?,
        tasks: line.whole(tasks)?,
        need: need(line, columns)?,
    };
    if read.tasks == 0 {
        return Err(line.fault(tasks, "is 0: a job has at least one task".into()));
    }
    if line.whole(exclusive)? > 1 {
        return Err(line.fault(exclusive, "is neither 0 nor 1".into()));
    }
    Ok(read)
}

fn need(line: &Record, columns: &[Column; 14]) -> Result<Need, Fault> {
    let [.., cpu, memory, gpus, milli, model, pool, exclusive] = *columns;
    let need = Need {
        cpu_milli: line.whole(cpu)?,
        memory_mib: line.whole(memory)?,
        gpu_count: line.whole(gpus)?,
        gpu_milli: line.whole(milli)?,
        gpu_models: models(line.text(model)),
        pool: Some(line.text(pool).to_owned()).filter(|pool| !pool.is_empty()),
        exclusive: line.whole(exclusive)? == 1,
    };
    if need.gpu_milli > 1000 {
        return Err(line.fault(
            milli,
            format!("{} is more than a whole gpu", need.gpu_milli),
        ));
    }
    if (need.gpu_count == 0) != (need.gpu_milli == 0) {
        return Err(line.fault(
            milli,
            "goes with the number of gpus: both or neither".into(),
        ));
    }
    if need.gpu_milli < 1000 && need.gpu_count > 1 {
        return Err(line.fault(gpus, "a share of a gpu is of one gpu".into()));
    }
    Ok(need)
}

fn models(text: &str) -> Vec<String> {
    let named = text.split('|').filter(|model| !model.is_empty());
    named.map(str::to_owned).collect()
}

/// Reads `nodes.csv`. An invalid node is always an error, because a missing node would silently
/// make every figure wrong.
pub fn read_nodes(source: impl BufRead) -> Result<Vec<Node>, TraceError> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut seen = BTreeSet::new();
    let take = |line: &Record, columns: &[Column; 6], _: Option<Column>| {
        let [id, pool, cpu, memory, gpus, model] = *columns;
        let node = Node {
            id: line.name(id)?.to_owned(),
            pool: line.text(pool).to_owned(),
            cpu_milli: line.whole(cpu)?,
            memory_mib: line.whole(memory)?,
            gpu_count: line.whole(gpus)?,
            gpu_model: line.text(model).to_owned(),
        };
        if !seen.insert(node.id.clone()) {
            return Err(line.fault(id, format!("{:?} was there before", node.id)));
        }
        nodes.push(node);
        Ok(())
    };
    read_table(source, NODE, None, take, Err)?;
    Ok(nodes)
}

/// Reads arrival orders, which are lists of job ids by seed.
pub fn read_arrivals(source: impl BufRead) -> Result<BTreeMap<u64, Vec<String>>, TraceError> {
    let mut orders: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let take = |line: &Record, columns: &[Column; 2], _: Option<Column>| {
        let seed = line.whole(columns[0])?;
        let id = line.name(columns[1])?.to_owned();
        orders.entry(seed).or_default().push(id);
        Ok(())
    };
    read_table(source, ARRIVAL, None, take, Err)?;
    Ok(orders)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "job_id,user,class,submit_s,runtime_s,limit_s,tasks,cpu_milli,memory_mib,\
                          gpu_count,gpu_milli,gpu_model,pool,exclusive,wait_s,status";

    fn jobs(lines: &[&str], bad: Bad) -> Result<Workload, TraceError> {
        let text = format!("{HEADER}\n{}\n", lines.join("\n"));
        read_jobs(text.as_bytes(), bad)
    }

    #[test]
    fn a_job_is_read_with_all_its_resources() {
        let line = "7,u1,LS,10,-1,60,4,1000,512,1,460,T4|A10,gpu,1,3,Running";
        let workload = jobs(&[line], Bad::Refuse).unwrap();
        let job = &workload.jobs[0];
        assert_eq!(
            (job.submit_s, job.runtime_s, job.limit_s),
            (Some(10), None, Some(60))
        );
        assert_eq!(job.need.gpu_models, ["T4", "A10"]);
        assert_eq!(job.need.pool.as_deref(), Some("gpu"));
        assert!(job.need.exclusive && job.need.gpu_milli == 460 && job.tasks == 4);
        assert_eq!(workload.users.name(job.user), "u1");
    }

    #[test]
    fn a_column_may_name_the_requested_queue() {
        let lines = [
            "7,u1,LS,10,5,60,4,1000,512,0,0,,,0,root.a",
            "8,u1,LS,10,5,60,4,1,1,0,0,,,0,",
        ];
        let header = HEADER.replace("wait_s,status", "queue");
        let text = format!("{header}\n{}\n", lines.join("\n"));
        let workload = read_jobs(text.as_bytes(), Bad::Refuse).unwrap();
        let queue = |at: usize| workload.jobs[at].queue.map(|it| workload.queues.name(it));
        assert_eq!((queue(0), queue(1)), (Some("root.a"), None));
        let without = jobs(
            &["7,u1,LS,10,5,60,4,1000,512,0,0,,,0,3,Running"],
            Bad::Refuse,
        );
        assert!(without.unwrap().queues.is_empty());
    }

    #[test]
    fn a_broken_line_is_named_with_its_column() {
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
            let fault = jobs(&[good, line], Bad::Refuse).unwrap_err().to_string();
            assert!(fault.starts_with(expected), "{fault}");
            let workload = jobs(&[good, line], Bad::Skip).unwrap();
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
