//! The command line as a whole: every subcommand with its one line, and what all of them share.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands::fleet::{
    backup, completion, demo, enrol, healthcheck, preflight, prepare, restore, single, token, up,
};
use crate::commands::inspect::{allocations, containers, plan, queues, replay, rounds, what_if};
use crate::commands::measure::{bench, simulate};
use crate::commands::operate::{
    audit, block, blocks, moves, node, nodes, orchestrators, policy, pool,
};
use crate::commands::work;
use crate::commands::work::{apps, cancel, logs, reserve, service, submit, tasks, watch};
use crate::connection::Access;

/// Share machines fairly: start a fleet, submit work, watch it, see why it waits.
#[derive(Debug, Parser)]
#[command(name = "hayward", version, max_term_width = 100, after_help = HINT)]
pub struct Cli {
    /// Where the fleet keeps its state. Default: what `hayward up` uses for this account.
    #[arg(long, global = true, env = "HAYWARD_STATE", value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Print the answer of the API as JSON.
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

const HINT: &str = "\
Start with `hayward up` in one terminal, and in another:
  hayward submit --count 4 --wait -- echo 'task {task}'";

/// A command that asks a fleet, and as whom.
#[derive(Debug, Args)]
pub struct As<T: Args> {
    #[command(flatten)]
    pub access: Access,
    #[command(flatten)]
    pub arguments: T,
}

/// Nothing of its own.
#[derive(Debug, Args)]
pub struct Nothing {}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a whole fleet on this machine; Ctrl-C ends it
    Up(up::Arguments),
    /// Watch a fleet share real work between two users, from nothing to checked results
    Demo(demo::Arguments),
    /// Measure this machine, each figure beside a baseline of the same run
    Bench(bench::Arguments),
    /// Run a scheduler over a recorded workload in simulated time
    Simulate(simulate::Arguments),
    /// Make keys, tokens and database schemas for services that run as processes of their own
    Prepare(prepare::Arguments),
    /// Issue, list, revoke and rotate the tokens of a keys directory
    Token(token::Arguments),
    /// Save the database and the keys in a folder
    Backup(backup::Arguments),
    /// Put a backup back, or accept what a database holds that went back in time
    Restore(restore::Arguments),
    #[command(flatten)]
    Asking(Box<Asking>),
    /// Drive the planner through a scenario, cycle by cycle, without a fleet
    Plan(plan::Arguments),
    /// Check the settings of a service
    Config(single::Config),
    /// Print a script that completes this command in a shell
    Completion(completion::Arguments),
    /// Ask an address and succeed when it answers 200
    Healthcheck(healthcheck::Arguments),
    /// Run one service as a process of its own
    #[command(hide = true, disable_help_flag = true)]
    Run(single::Arguments),
}

/// What is asked of a fleet that is there.
#[derive(Debug, Subcommand)]
pub enum Asking {
    /// Submit a job: one task, many, or one per line of a file
    Submit(Box<As<submit::Arguments>>),
    /// List jobs
    Jobs(As<work::Listing>),
    /// List applications: tasks that belong together, and gangs
    Apps(As<apps::Listing>),
    /// Show one application: its states, groups, tasks, what it holds and why it waits
    App(As<apps::Which>),
    /// Show one job, its processes and the tasks that failed
    Job(As<work::Which>),
    /// Follow a job, a service or a reservation until it is over, or the machines
    Watch(As<watch::Arguments>),
    /// Print what tasks said last, or what a service writes
    Logs(As<logs::Arguments>),
    /// List how the tasks of a job ended
    Tasks(As<tasks::Arguments>),
    /// End jobs, services or reservations
    Cancel(As<cancel::Arguments>),
    /// Move a process of a service to another host
    Move(As<moves::Move>),
    /// Start a process of a service anew where it is
    Restart(As<moves::Restart>),
    /// Say why work waits, with the numbers behind it
    Explain(As<work::Which>),
    /// Say what happened to a piece of work
    Timeline(As<work::Which>),
    /// Submit, list, show and end services: programs that are kept up
    Service(As<service::Arguments>),
    /// Reserve a whole machine
    Reserve(As<reserve::Arguments>),
    /// List reservations
    Reservations(As<work::Listing>),
    /// Give a reserved machine back
    Release(As<cancel::Arguments>),

    /// Say how each service is
    Status(As<Nothing>),
    /// Say whether the fleet is well, and if not, what to do
    Doctor(As<Nothing>),
    /// Export the audit records of the fleet, and verify that they are whole
    Audit(As<audit::Arguments>),
    /// Say whether this version may be put in the place of the one that runs
    Preflight(As<preflight::Arguments>),
    /// List the machines
    Nodes(As<nodes::Arguments>),
    /// Show a machine, empty it, vary it off or on, forget it
    Node(As<node::Arguments>),
    /// Let the agent of a new machine in
    Enrol(As<enrol::Arguments>),
    /// Keep work off a machine, for a while or for good
    Block(As<block::Block>),
    /// Take a block away
    Unblock(As<block::What>),
    /// List what is blocked, and until when; show evidence, choose a strategy
    Blocks(As<blocks::Arguments>),
    /// Show who is due what and who holds what
    Shares(As<Nothing>),
    /// Show what is asked for against what there is, by pool and class
    Load(As<Nothing>),
    /// Show the queues of pools: what each uses, is guaranteed and may have
    Queues(As<queues::Arguments>),
    /// Show who plans for each pool, and what came of the answers of planners outside
    Planners(As<Nothing>),
    /// List who holds which room where
    Allocations(As<allocations::Filter>),
    /// List what runs on the machines
    Containers(As<containers::Arguments>),
    /// Show what the scheduler decided lately
    Rounds(As<rounds::Arguments>),
    /// Plan a round of the past once more and compare, byte by byte
    Replay(As<replay::Arguments>),
    /// Say who would start, wait or have to go, if
    WhatIf(Box<As<what_if::Arguments>>),
    /// Make, list, size and end worker pools: an outside owner decides about their workers
    Pool(As<pool::Arguments>),
    /// List, make and remove orchestrators: each puts a map of all its work
    Orchestrators(As<orchestrators::Arguments>),
    /// Show, check, compare or replace the policy: pools, classes, weights, limits
    Policy(As<policy::Arguments>),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn each(command: &clap::Command, see: &mut impl FnMut(&clap::Command)) {
        for sub in command
            .get_subcommands()
            .filter(|sub| sub.get_name() != "help")
        {
            see(sub);
            each(sub, see);
        }
    }

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_says_what_it_does_and_has_help() {
        let mut seen = 0;
        let mut all = Cli::command();
        all.build();
        each(&all, &mut |sub| {
            let name = sub.get_name().to_owned();
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!about.is_empty(), "{name} has no about line");
            assert!(!about.ends_with('.'), "{name}: {about}");
            let help = sub.clone().render_long_help().to_string();
            assert!(
                help.contains(&about) && help.contains("Usage:"),
                "{name}: {help}"
            );
            for argument in sub.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{name}: {} is silent",
                    argument.get_id()
                );
            }
            seen += 1;
        });
        assert!(seen > 35, "{seen}");
    }

    /// Flags that all commands share win over flags of one command by their names, silently.
    #[test]
    fn no_command_hides_a_flag_that_all_share() {
        let shared: Vec<String> = Cli::command()
            .get_arguments()
            .map(|argument| argument.get_id().to_string())
            .collect();
        each(&Cli::command(), &mut |sub| {
            for argument in sub.get_arguments() {
                let id = argument.get_id().to_string();
                assert!(!shared.contains(&id), "{}: {id}", sub.get_name());
            }
        });
    }

    #[test]
    fn a_job_is_read_from_its_flags() {
        let cli = Cli::try_parse_from([
            "hayward", "submit", "--count", "4", "--memory", "2G", "--cpu", "1.5", "--env", "A=1",
            "--wait", "--user", "ada", "--", "echo", "--count", "{task}",
        ]);
        let Command::Asking(asking) = cli.unwrap().command else {
            panic!("a question")
        };
        let Asking::Submit(submit) = *asking else {
            panic!("a submission")
        };
        assert_eq!(submit.access.user.unwrap().as_str(), "ada");
        let arguments = submit.arguments;
        assert_eq!(arguments.command, ["echo", "--count", "{task}"]);
        assert_eq!(arguments.count, Some(4));
        let size = arguments.needs.size().unwrap();
        assert_eq!((size.memory_bytes, size.cpu_milli), (2 << 30, 1500));
        assert!(arguments.then.wait && !arguments.then.quiet);
    }

    #[test]
    fn the_token_of_an_owner_is_not_the_token_of_who_asks() {
        let cli = Cli::try_parse_from([
            "hayward",
            "pool",
            "create",
            "--token-file",
            "mine",
            "--owner-token",
            "its",
            "--size",
            "2",
            "--",
            "worker",
            "--size",
        ]);
        let Command::Asking(asking) = cli.unwrap().command else {
            panic!("a question")
        };
        let Asking::Pool(pool) = *asking else {
            panic!("a pool")
        };
        assert_eq!(pool.access.token_file, Some("mine".into()));
        let pool::Command::Create(create) = pool.arguments.command else {
            panic!("a new pool")
        };
        assert_eq!(create.owner_token, Some("its".into()));
        assert_eq!(create.command, ["worker", "--size"]);
    }

    #[test]
    fn a_switch_with_a_variable_takes_a_value_and_needs_none() {
        for (words, on) in [
            (&["up"][..], false),
            (&["up", "--allow-insecure"], true),
            (&["up", "--allow-insecure", "false"], false),
            (&["up", "--allow-insecure", "true", "--agents", "1"], true),
            (&["up", "--allow-insecure", "--agents", "1"], true),
        ] {
            let cli = Cli::try_parse_from(["hayward"].iter().chain(words)).unwrap();
            let Command::Up(up) = cli.command else {
                panic!("a fleet")
            };
            assert_eq!(up.elsewhere.allow_insecure, on, "{words:?}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for words in [
            vec!["submit"],
            vec!["submit", "--count", "2", "--each", "f", "--", "a"],
            vec!["submit", "--file", "f", "--memory", "1G"],
            vec!["submit", "--memory", "lots", "--", "a"],
            vec!["block", "n", "--for", "1m", "--permanent"],
            vec!["block", "a/b"],
            vec!["jobs", "--in", "done"],
            vec!["jobs", "--user", "a", "--operator"],
            vec!["cancel"],
        ] {
            let read = Cli::try_parse_from(["hayward"].iter().chain(&words));
            assert!(read.is_err(), "{words:?}");
        }
    }
}
