//! The result file of a simulation as CSV: one line for each job.

use std::fmt::Write as _;

use crate::{
    case::Case,
    measure::{Outcome, Results, flow_ms, slowdown, wait_ms},
};

/// Formats milliseconds as seconds with three decimals, exactly.
fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// Lists the jobs in order of submission, with times in seconds since the start of the trace. With
/// queues, each line also has the queue of the job or the reason of its refusal.
pub fn jobs_csv(case: &Case, results: &Results) -> String {
    let mut text = String::from(
        "job_id,user,class,tasks,submit_s,start_s,end_s,run_s,wait_s,flow_s,bounded_slowdown,\
         evictions,lost_core_s",
    );
    let has_queue_result = |outcome: &Outcome| outcome.queue.is_some() || outcome.refusal.is_some();
    let with_queues = results.outcomes.iter().any(has_queue_result);
    text += if with_queues {
        ",queue,refused\n"
    } else {
        "\n"
    };
    for (job, outcome) in case.jobs.iter().zip(&results.outcomes) {
        let (users, classes) = (&case.workload.users, &case.workload.classes);
        let time = |moment: Option<u64>| moment.map(seconds).unwrap_or_default();
        let ended = outcome.ended.is_some();
        let lost = outcome.lost / 1000;
        let fields = [
            job.id.clone(),
            users.name(job.user).to_owned(),
            classes.name(job.class).to_owned(),
            job.tasks.to_string(),
            seconds(outcome.submitted),
            time(outcome.started),
            time(outcome.ended),
            outcome.run_s.to_string(),
            time(outcome.started.map(|_| wait_ms(outcome))),
            time(outcome.ended.map(|_| flow_ms(outcome))),
            if ended {
                format!("{:.3}", slowdown(outcome))
            } else {
                String::new()
            },
            outcome.evictions.to_string(),
            format!("{}.{:03}", lost / 1000, lost % 1000),
        ];
        write!(text, "{}", fields.join(",")).expect("a string takes text");
        if with_queues {
            let queue = outcome
                .queue
                .map(|queue| results.series.queue_names[queue].as_str());
            let refused = outcome.refusal.as_ref().map(|it| it.reason.as_str());
            let (queue, refused) = (queue.unwrap_or_default(), refused.unwrap_or_default());
            write!(text, ",{queue},{refused}").expect("a string takes text");
        }
        text.push('\n');
    }
    text
}
