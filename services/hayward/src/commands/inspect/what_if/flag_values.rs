//! Parses the values of flags that describe work or nodes: `user=ada,memory=4G,processes=20` and
//! `4x64G,pool=fast`.

use anyhow::{Context as _, anyhow, bail};
use hayward_rm_scheduler_api::what_if::{NewNodes, Submission};
use hayward_vocabulary::{Size, WorkKind};

use crate::value_parsers;

pub fn parse_submission(text: &str) -> anyhow::Result<Submission> {
    let mut submission = Submission {
        name: None,
        kind: WorkKind::Job,
        user: None,
        class: None,
        queue: None,
        pool: None,
        size: None,
        processes: None,
        tasks: None,
        task_ms: None,
        threads: None,
        machines: Vec::new(),
    };
    for (name, value) in parse_pairs(text)? {
        let parse_number = || {
            value
                .parse()
                .with_context(|| format!("{name}: {value:?} is no number"))
        };
        match name {
            "name" => submission.name = Some(value.parse()?),
            "kind" => submission.kind = parse_kind(value)?,
            "user" => submission.user = Some(value.parse()?),
            "class" => submission.class = Some(value.to_owned()),
            "queue" => submission.queue = Some(value.to_owned()),
            "pool" => submission.pool = Some(value.to_owned()),
            "processes" => submission.processes = Some(parse_number()?),
            "tasks" => submission.tasks = Some(parse_number()?),
            "task" => submission.task_ms = Some(value_parsers::parse_duration_ms(value)?),
            "threads" => submission.threads = Some(u32::try_from(parse_number()?)?),
            "machine" => submission.machines.push(value.parse()?),
            _ => {
                let size = submission.size.get_or_insert_with(Size::default);
                set_resource(size, name, value)?;
            }
        }
    }
    // A size without memory gets the default memory. A reservation has no default, because it takes
    // a whole node of any size.
    if let Some(size) = &mut submission.size
        && size.memory_bytes == 0
        && submission.kind != WorkKind::Reservation
    {
        size.memory_bytes = hayward_vocabulary::resources::GIB;
    }
    Ok(submission)
}

pub fn parse_nodes(text: &str) -> anyhow::Result<NewNodes> {
    let (first, options) = text.split_once(',').unwrap_or((text, ""));
    let (count, memory) = match first.split_once('x') {
        Some((count, memory)) => {
            let count = count.parse();
            (
                count.with_context(|| format!("{first:?}: write COUNTxMEMORY, as in 4x64G"))?,
                memory,
            )
        }
        None => (1, first),
    };
    let mut nodes = NewNodes {
        name: None,
        count,
        pool: None,
        size: Size::memory(value_parsers::parse_bytes(memory)?),
    };
    for (name, value) in parse_pairs(options)? {
        match name {
            "name" => nodes.name = Some(value.parse()?),
            "pool" => nodes.pool = Some(value.to_owned()),
            _ => set_resource(&mut nodes.size, name, value)?,
        }
    }
    Ok(nodes)
}

/// Parses `NAME=VALUE` pairs that are separated by commas.
fn parse_pairs(text: &str) -> anyhow::Result<Vec<(&str, &str)>> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    let not_a_pair = |part: &'_ str| anyhow!("{part:?} is not NAME=VALUE");
    parts
        .map(|part| part.split_once('=').ok_or_else(|| not_a_pair(part)))
        .collect()
}

/// Sets the amount of one resource type.
fn set_resource(size: &mut Size, name: &str, value: &str) -> anyhow::Result<()> {
    match name {
        "memory" => size.memory_bytes = value_parsers::parse_bytes(value)?,
        "cpu" => size.cpu_milli = value_parsers::parse_cpu_milli(value)?,
        // GPUs have the same format as CPUs.
        "gpu" => size.gpu_milli = value_parsers::parse_cpu_milli(value)?,
        _ => bail!("unknown name {name:?}"),
    }
    Ok(())
}

fn parse_kind(text: &str) -> anyhow::Result<WorkKind> {
    Ok(match text {
        "job" => WorkKind::Job,
        "service" => WorkKind::Service,
        "reservation" => WorkKind::Reservation,
        _ => bail!("{text:?} is not job, service or reservation"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = hayward_vocabulary::resources::GIB;

    #[test]
    fn work_is_parsed_from_one_flag() {
        let work =
            parse_submission("user=ada,class=high,memory=4GiB,cpu=1.5,processes=20,task=90s");
        let work = work.unwrap();
        assert_eq!(work.user.unwrap().as_str(), "ada");
        let size = work.size.unwrap();
        assert_eq!((size.memory_bytes, size.cpu_milli), (4 * GIB, 1_500));
        assert_eq!((work.processes, work.task_ms), (Some(20), Some(90_000)));
        let service = parse_submission("kind=service,gpu=250m,machine=n1,machine=n2").unwrap();
        assert_eq!(
            (service.kind, service.machines.len()),
            (WorkKind::Service, 2)
        );
        assert_eq!(service.size.unwrap().memory_bytes, GIB);
        for bad in [
            "user",
            "kind=batch",
            "procesess=2",
            "processes=many",
            "memory=lots",
        ] {
            assert!(parse_submission(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nodes_are_parsed_from_one_flag() {
        let four = parse_nodes("4x64GiB,cpu=16,pool=fast").unwrap();
        assert_eq!(
            (four.count, four.size.memory_bytes, four.size.cpu_milli),
            (4, 64 * GIB, 16_000)
        );
        assert_eq!(four.pool.as_deref(), Some("fast"));
        let one = parse_nodes("8G,name=big").unwrap();
        assert_eq!((one.count, one.name.unwrap().as_str()), (1, "big"));
        for bad in ["", "fourx8G", "4x", "4x8G,disk=1"] {
            assert!(parse_nodes(bad).is_err(), "{bad}");
        }
    }
}
