//! Tests `hayward simulate` on a small trace: 40 jobs of four users on two nodes with four CPUs
//! each.

use std::fmt::Write as _;

use super::*;
use crate::output::error_text;

/// Column of the end time of a job in the CSV output.
const END_COLUMN: usize = 6;

/// Writes the trace and its nodes into a temporary folder.
fn write_trace() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut jobs = String::from(
        "job_id,user,class,submit_s,runtime_s,limit_s,tasks,cpu_milli,memory_mib,gpu_count,\
         gpu_milli,gpu_model,pool,exclusive,wait_s,status\n",
    );
    for number in 0..40 {
        let (user, runtime, tasks) = (number % 4, 50 + number * 7 % 90, 1 + number % 5);
        let submit = number * 11;
        let line =
            format!("{number},u{user},c,{submit},{runtime},200,{tasks},1000,100,0,0,,,0,-1,");
        writeln!(jobs, "{line}").unwrap();
    }
    std::fs::write(folder.path().join("jobs.csv"), jobs).unwrap();
    let nodes = "node_id,pool,cpu_milli,memory_mib,gpu_count,gpu_model\n\
                 a,default,4000,4096,0,\nb,default,4000,4096,0,\n";
    std::fs::write(folder.path().join("nodes.csv"), nodes).unwrap();
    folder
}

/// Returns arguments that write all outputs into the folder.
fn trace_arguments(folder: &Path, policy: &str) -> TraceArguments {
    let Ok(policy) = policy.parse();
    TraceArguments {
        file: folder.join("jobs.csv"),
        policy,
        queue: None,
        nodes: None,
        first_nodes: None,
        csv: Some(folder.join("out.csv")),
        plots: Some(folder.join("plots")),
        skip_bad: false,
    }
}

#[test]
fn every_policy_runs_and_equal_inputs_give_equal_files() {
    let folder = write_trace();
    let file = folder.path().join("policy.yaml");
    let policy = hayward_rm_scheduler_api::policy::Policy::default();
    std::fs::write(&file, serde_json::to_string(&policy).unwrap()).unwrap();
    let files = [
        "out.csv",
        "plots/shares.svg",
        "plots/utilisation.svg",
        "plots/waits.svg",
    ];
    let policies = [
        "fcfs",
        "easy",
        "fair-easy",
        "fluid",
        "gang",
        "gang-no-checkpoint",
        "even",
        file.to_str().unwrap(),
    ];
    for policy in policies {
        let trace = trace_arguments(folder.path(), policy);
        let mut runs = Vec::new();
        for _ in 0..2 {
            simulate(Output::new(true), &trace).unwrap();
            let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
            runs.push(files.map(read));
        }
        assert_eq!(runs[0], runs[1], "{policy}");
        let [csv, shares, ..] = &runs[0];
        assert_eq!(csv.lines().count(), 41, "{policy}");
        let all_ended = csv
            .lines()
            .skip(1)
            .all(|line| !line.split(',').nth(END_COLUMN).unwrap().is_empty());
        assert!(all_ended, "{policy}: {csv}");
        assert!(
            shares.contains(">u3<") && shares.ends_with("</svg>\n"),
            "{policy}"
        );
    }
}

/// Adds queues to the trace. The first job requests the closed queue and the second none. All other
/// jobs alternate between the queues `odd` and `even`.
fn trace_with_queues(folder: &Path) -> TraceArguments {
    let file = folder.join("queues.json");
    let queue = json!({ "submit_acl": "*", "preemption_delay_ms": 20_000,
                       "resources": { "guaranteed": { "vcore": 4 } } });
    let policy = json!({
        "pools": { "default": { "queues": { "queues": {
            "even": queue, "odd": queue, "closed": {} } } } },
        "classes": {},
    });
    std::fs::write(&file, policy.to_string()).unwrap();
    let jobs = folder.join("jobs.csv");
    let text = std::fs::read_to_string(&jobs).unwrap();
    let queued = text.lines().enumerate().map(|(number, line)| match number {
        0 => format!("{line},queue\n"),
        1 => format!("{line},root.closed\n"),
        2 => format!("{line},\n"),
        _ if number % 2 == 0 => format!("{line},root.even\n"),
        _ => format!("{line},odd\n"),
    });
    std::fs::write(&jobs, queued.collect::<String>()).unwrap();
    trace_arguments(folder, file.to_str().unwrap())
}

#[test]
fn a_policy_with_queues_shows_the_use_of_each_queue() {
    let folder = write_trace();
    let mut trace = trace_with_queues(folder.path());
    trace.queue = Some("root.even".to_owned());
    let files = ["out.csv", "plots/queues.svg", "plots/shares.svg"];
    let mut runs = Vec::new();
    for _ in 0..2 {
        simulate(Output::new(true), &trace).unwrap();
        let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
        runs.push(files.map(read));
    }
    assert_eq!(runs[0], runs[1], "equal inputs, equal bytes");
    let [csv, queues, _] = &runs[0];
    assert!(queues.contains(">root.even<") && queues.contains(">root.odd<"));
    let count_ending_with = |end: &str| csv.lines().filter(|line| line.ends_with(end)).count();
    // Lines end with the queue of the job and the reason of its refusal. The first line is the
    // header.
    let line_ends = [
        ",queue,refused",
        ",root.even,",
        ",root.odd,",
        ",,not_authorised",
    ];
    assert_eq!(line_ends.map(count_ending_with), [1, 20, 19, 1]);
    let workload = open_jobs(&trace.file, InvalidLines::Refuse).unwrap();
    let nodes = nodes_for(&trace, &workload).unwrap();
    let case = trace.policy.case(&workload, &nodes);
    let simulate_queue = |queue| trace.policy.simulate(&case, queue, &mut |_| {});
    let results = simulate_queue(Some("root.even")).unwrap();
    let summary = render(
        &case,
        "queues.json",
        &results.summary,
        &Output::new(false).renderer(),
    );
    for words in [
        "root.even: ",
        "20 of 20 jobs completed",
        "1 job, not_authorised; the first: user u0 may not submit to queue root.closed",
    ] {
        assert!(summary.contains(words), "{words}: {summary}");
    }
    // Without the flag a job has no queue, because no rule of the policy selects one.
    let results = simulate_queue(None).unwrap();
    assert_eq!(results.summary.refused["no_class"].jobs, 1);
}

#[test]
fn a_queue_flag_requires_a_policy_with_queues() {
    let folder = write_trace();
    let mut trace = trace_arguments(folder.path(), "easy");
    trace.queue = Some("root.a".to_owned());
    let fault = simulate(Output::new(true), &trace).unwrap_err().to_string();
    assert!(fault.contains("leave out --queue"), "{fault}");
}

#[test]
fn an_invalid_line_is_an_error_or_is_skipped() {
    let folder = write_trace();
    let file = folder.path().join("jobs.csv");
    let text = std::fs::read_to_string(&file).unwrap() + "x,u,c,1,2,3,four,1,1,0,0,,,0,0,\n";
    std::fs::write(&file, text).unwrap();
    let mut trace = trace_arguments(folder.path(), "easy");
    let fault = format!("{:#}", simulate(Output::new(true), &trace).unwrap_err());
    assert!(
        fault.contains("line 42, column 7 (tasks): \"four\""),
        "{fault}"
    );
    trace.skip_bad = true;
    simulate(Output::new(true), &trace).unwrap();
}

#[test]
fn the_header_of_an_swf_trace_gives_the_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = trace_arguments(folder.path(), "easy");
    trace.file = folder.path().join("log.swf");
    let record = "1 5 0 60 4 -1 0 4 120 -1 1 3 1 -1 0 -1 -1 -1\n";
    std::fs::write(&trace.file, format!("; MaxProcs: 4\n{record}")).unwrap();
    simulate(Output::new(true), &trace).unwrap();
    std::fs::write(&trace.file, record).unwrap();
    let fault = simulate(Output::new(true), &trace).unwrap_err().to_string();
    assert!(fault.contains("--nodes"), "{fault}");
}

#[test]
fn an_invalid_policy_is_refused() {
    let folder = write_trace();
    let file = folder.path().join("policy.json");
    let trace = trace_arguments(folder.path(), file.to_str().unwrap());
    let valid = "{\"pools\":{\"p\":{}},\"classes\":{\"fair\":{\"policy\":\"FAIR_SHARE\",\
                \"priority\":1,\"weight\":3,\"default\":true,\"pool\":\"p\"}}}";
    // Each case replaces one part of the valid policy.
    for (from, to, expected) in [
        ("\"pool\":\"p\"", "\"pool\":\"q\"", "there is no pool \"q\""),
        (
            "\"weight\":3",
            "\"weight\":0",
            "/classes/fair/weight: must be at least 1",
        ),
        (
            "{\"p\":{}}",
            "{\"p\":{\"parent\":\"p\"}}",
            "/pools/p/parent: pools form a cycle",
        ),
        (
            "{\"p\":{}}",
            "{\"p\":{},\"r\":{\"parent\":\"s\"}}",
            "/pools/r/parent: there is no pool \"s\"",
        ),
        ("true", "false", "no class is the default of FAIR_SHARE"),
    ] {
        let text = valid.replace(from, to);
        std::fs::write(&file, &text).unwrap();
        let fault = error_text::describe(&simulate(Output::new(true), &trace).unwrap_err());
        assert!(fault.contains(expected), "{text}: {fault}");
    }
    std::fs::write(&file, valid).unwrap();
    simulate(Output::new(true), &trace).unwrap();
}
