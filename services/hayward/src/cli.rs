//! The command line: every subcommand with its help line, and the common flags.

mod script_flags;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands::fleet::{
    backup, completion, config, demo, enrol, healthcheck, preflight, prepare, restore, run_service,
    token, up,
};
use crate::commands::inspect::{allocations, containers, plan, queues, replay, rounds, what_if};
use crate::commands::measure::{bench, simulate};
use crate::commands::operate::{
    accounts, audit, block, blocks, moves, node, nodes, orchestrators, policy, worker_pool,
};
use crate::commands::work;
use crate::commands::work::{
    apps, cancel, logs, reserve, service, signal, submit, task, tasks, watch,
};
use crate::connection::Access;

pub use script_flags::parse_submit_again;

/// Schedule work on a fleet of nodes: start a fleet, submit work, follow it, see why it waits.
#[derive(Debug, Parser)]
#[command(name = "hayward", version, max_term_width = 100, after_help = FIRST_STEPS)]
pub struct Cli {
    /// State directory of the fleet. Default: that of `hayward up` for this account.
    #[arg(long, global = true, env = "HAYWARD_STATE", value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Print the answer of the API as JSON.
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

const FIRST_STEPS: &str = "\
Start with `hayward up` in one terminal, and in another:
  hayward submit --count 4 --wait -- echo 'task {task}'";

const TASK_EXAMPLE: &str = "\
Example, for the first task of a job:
  hayward task job_01a1feb8be5372f683f1ff1912f559b9 0";

const CANCEL_EXAMPLE: &str = "\
Example, for six tasks of a job:
  hayward cancel job_01a1feb8be5372f683f1ff1912f559b9 --task 5-9,12";

const SIGNAL_EXAMPLE: &str = "\
Example, for the first task of a job:
  hayward signal job_01a1feb8be5372f683f1ff1912f559b9 USR1 --task 0";

/// A command that calls a fleet, with the caller's token.
#[derive(Debug, Args)]
pub struct WithAccess<T: Args> {
    #[command(flatten)]
    pub access: Access,
    #[command(flatten)]
    pub arguments: T,
}

/// No arguments.
#[derive(Debug, Args)]
pub struct NoArguments {}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a whole fleet on this computer; Ctrl-C ends it
    Up(up::Arguments),
    /// Start a fleet, run real work of two users, check every result
    Demo(demo::Arguments),
    /// Measure Hayward on this computer, each figure with a baseline of the same run
    Bench(bench::Arguments),
    /// Run a scheduler over a recorded workload in simulated time
    Simulate(simulate::Arguments),
    /// Make keys, tokens and database schemas for services in separate processes
    Prepare(prepare::Arguments),
    /// Issue, list, revoke and rotate the tokens of a keys directory
    Token(token::Arguments),
    /// Save the database and the keys in a folder
    Backup(backup::Arguments),
    /// Restore a backup, or accept a database that went back in time
    Restore(restore::Arguments),
    #[command(flatten)]
    Fleet(Box<FleetCommand>),
    /// Run the planner through a scenario, round by round, without a fleet
    Plan(plan::Arguments),
    /// Check or explain the settings of a service
    Config(config::Arguments),
    /// Print a completion script for a shell
    Completion(completion::Arguments),
    /// Request an address and succeed when it answers 200
    Healthcheck(healthcheck::Arguments),
    /// Run one service as a separate process
    #[command(hide = true, disable_help_flag = true)]
    Run(run_service::Arguments),
}

/// Commands that call a running fleet.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Submit a job: one task, many, or a file
    Submit(Box<WithAccess<submit::Arguments>>),
    /// List jobs
    Jobs(WithAccess<work::Listing>),
    /// List applications: tasks that belong together, and gangs
    Apps(WithAccess<apps::Listing>),
    /// Show one application: states, groups, tasks, allocations, why it waits
    App(WithAccess<apps::IdArg>),
    /// Show one job, its processes and its failed tasks
    Job(WithAccess<work::IdArg>),
    /// Follow a job, service or reservation until it ends, or all nodes
    Watch(WithAccess<watch::Arguments>),
    /// Print the last output of tasks, or the output of a service
    Logs(WithAccess<logs::Arguments>),
    /// List the tasks of a job and how they ended, or those that run
    Tasks(WithAccess<tasks::Arguments>),
    /// Show one task of a job, with its failed attempts and its last output
    #[command(after_help = TASK_EXAMPLE)]
    Task(WithAccess<task::Arguments>),
    /// End jobs, services or reservations, or single tasks of a job
    #[command(after_help = CANCEL_EXAMPLE)]
    Cancel(WithAccess<cancel::Arguments>),
    /// Send a signal to running tasks of a job
    #[command(after_help = SIGNAL_EXAMPLE)]
    Signal(WithAccess<signal::Arguments>),
    /// Move a process of a service to another node
    Move(WithAccess<moves::MoveArguments>),
    /// Restart a process of a service on its node
    Restart(WithAccess<moves::RestartArguments>),
    /// Show why work waits, with the numbers
    Explain(WithAccess<work::IdArg>),
    /// Show the history of a piece of work
    Timeline(WithAccess<work::IdArg>),
    /// Submit, list, show and end services: programs that are kept running
    Service(WithAccess<service::Arguments>),
    /// Reserve a whole node
    Reserve(WithAccess<reserve::Arguments>),
    /// List reservations
    Reservations(WithAccess<work::Listing>),
    /// End a reservation
    Release(WithAccess<cancel::Arguments>),

    /// Show the state of each service
    Status(WithAccess<NoArguments>),
    /// Check whether the fleet is healthy, and advise what to do
    Doctor(WithAccess<NoArguments>),
    /// List the users with work and the number of their account, or forget a user
    Accounts(WithAccess<accounts::Arguments>),
    /// Export and verify the audit records of the fleet
    Audit(WithAccess<audit::Arguments>),
    /// Check whether this version may replace the running one
    Preflight(WithAccess<preflight::Arguments>),
    /// List the nodes
    Nodes(WithAccess<nodes::Arguments>),
    /// Show a node, drain it, take it out of service or back, forget it
    Node(WithAccess<node::Arguments>),
    /// Admit the agent of a new node
    Enrol(WithAccess<enrol::Arguments>),
    /// Block a node or worker, for a while or for ever
    Block(WithAccess<block::BlockArguments>),
    /// Remove a block
    Unblock(WithAccess<block::BlockTarget>),
    /// List blocks; show evidence, choose a strategy
    Blocks(WithAccess<blocks::Arguments>),
    /// Show the entitlement and the usage of every user and piece of work
    Shares(WithAccess<NoArguments>),
    /// Compare demand with capacity, by pool and class
    Load(WithAccess<NoArguments>),
    /// Show the queues of pools: usage, guarantee, maximum
    Queues(WithAccess<queues::Arguments>),
    /// Show the planner of each pool, and the answers of external planners
    Planners(WithAccess<NoArguments>),
    /// List allocations: which work holds what on which node
    Allocations(WithAccess<allocations::Filter>),
    /// List containers on the nodes
    Containers(WithAccess<containers::Arguments>),
    /// Show the newest decisions of the scheduler
    Rounds(WithAccess<rounds::Arguments>),
    /// Plan a past round again and compare byte by byte
    Replay(WithAccess<replay::Arguments>),
    /// Show what would start, wait or leave after a change
    WhatIf(Box<WithAccess<what_if::Arguments>>),
    /// Make, list, resize and end worker pools, whose owner is an external program
    Pool(WithAccess<worker_pool::Arguments>),
    /// List, make and remove orchestrators
    Orchestrators(WithAccess<orchestrators::Arguments>),
    /// Show, check, compare or replace the policy: pools, classes, weights, limits
    Policy(WithAccess<policy::Arguments>),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn visit_subcommands(command: &clap::Command, visit: &mut impl FnMut(&clap::Command)) {
        for sub in command
            .get_subcommands()
            .filter(|sub| sub.get_name() != "help")
        {
            visit(sub);
            visit_subcommands(sub, visit);
        }
    }

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_has_a_summary_and_help() {
        let mut subcommands = 0;
        let mut all = Cli::command();
        all.build();
        visit_subcommands(&all, &mut |sub| {
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
                    "{name}: {} has no help",
                    argument.get_id()
                );
            }
            subcommands += 1;
        });
        // A smaller number means that the visit missed some of them.
        assert!(subcommands > 35, "{subcommands}");
    }

    /// A shared flag silently replaces a flag of the same name of one command.
    #[test]
    fn shared_flags_are_not_redefined_by_commands() {
        let shared: Vec<String> = Cli::command()
            .get_arguments()
            .map(|argument| argument.get_id().to_string())
            .collect();
        visit_subcommands(&Cli::command(), &mut |sub| {
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
        let Command::Fleet(command) = cli.unwrap().command else {
            panic!("not a command for a running fleet")
        };
        let FleetCommand::Submit(submit) = *command else {
            panic!("not a submission")
        };
        assert_eq!(submit.access.user.unwrap().as_str(), "ada");
        let arguments = submit.arguments;
        assert_eq!(arguments.command, ["echo", "--count", "{task}"]);
        assert_eq!(arguments.count, Some(4));
        let size = arguments.common.size().unwrap();
        assert_eq!((size.memory_bytes, size.cpu_milli), (2 << 30, 1500));
        assert!(arguments.after.wait && !arguments.after.quiet);
    }

    #[test]
    fn the_token_of_a_pool_owner_differs_from_the_token_of_the_caller() {
        let cli = Cli::try_parse_from([
            "hayward",
            "pool",
            "create",
            "--token-file",
            "caller.token",
            "--owner-token",
            "owner.token",
            "--size",
            "2",
            "--",
            "worker",
            "--size",
        ]);
        let Command::Fleet(command) = cli.unwrap().command else {
            panic!("not a command for a running fleet")
        };
        let FleetCommand::Pool(pool) = *command else {
            panic!("not a command for pools")
        };
        assert_eq!(pool.access.token_file, Some("caller.token".into()));
        let worker_pool::Command::Create(create) = pool.arguments.command else {
            panic!("not the creation of a pool")
        };
        assert_eq!(create.owner_token, Some("owner.token".into()));
        assert_eq!(create.command, ["worker", "--size"]);
    }

    #[test]
    fn a_flag_with_an_environment_variable_takes_an_optional_value() {
        for (arguments, expected) in [
            (&["up"][..], false),
            (&["up", "--allow-insecure"], true),
            (&["up", "--allow-insecure", "false"], false),
            (&["up", "--allow-insecure", "true", "--agents", "1"], true),
            (&["up", "--allow-insecure", "--agents", "1"], true),
        ] {
            let cli = Cli::try_parse_from(["hayward"].iter().chain(arguments)).unwrap();
            let Command::Up(up) = cli.command else {
                panic!("not `up`")
            };
            assert_eq!(
                up.remote_endpoints.allow_insecure, expected,
                "{arguments:?}"
            );
        }
    }

    #[test]
    fn conflicting_flags_are_refused() {
        for arguments in [
            vec!["submit"],
            vec!["submit", "--count", "2", "--each", "f", "--", "a"],
            vec!["submit", "--file", "f", "--memory", "1G"],
            vec!["submit", "--file", "f", "--time", "1h"],
            vec!["submit", "--gang", "f", "--discard-output"],
            vec!["submit", "--file", "f", "--retry-on", "exited"],
            vec!["submit", "--memory", "lots", "--", "a"],
            vec!["tasks", "job_1", "--failed", "--running"],
            vec!["tasks", "job_1", "--failed", "--cancelled"],
            vec!["task", "job_1"],
            vec!["block", "n", "--for", "1m", "--permanent"],
            vec!["block", "a/b"],
            vec!["jobs", "--in", "done"],
            vec!["jobs", "--user", "a", "--operator"],
            vec!["cancel"],
            vec!["signal", "job_1"],
            vec!["signal", "job_1", "usr1"],
        ] {
            let result = Cli::try_parse_from(["hayward"].iter().chain(&arguments));
            assert!(result.is_err(), "{arguments:?}");
        }
    }
}
