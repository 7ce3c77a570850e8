//! The `hayward` program: parses the command line and calls the command.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use hayward::cli::{Cli, Command, FleetCommand, parse_submit_again};
use hayward::commands::fleet::{
    backup, completion, config, demo, enrol, healthcheck, node_agent, preflight, prepare, restore,
    run_service, token, up,
};
use hayward::commands::inspect::{
    allocations, containers, load, plan, planners, queues, replay, rounds, shares, what_if,
};
use hayward::commands::measure::{bench, simulate};
use hayward::commands::operate::{
    accounts, audit, block, blocks, doctor, moves, node, nodes, orchestrators, policy, status,
    worker_pool,
};
use hayward::commands::work::{
    apps, cancel, explain, job, jobs, logs, reserve, service, signal, submit, task, tasks,
    timeline, watch,
};
use hayward::connection::{Access, Session};
use hayward::output::{Output, error_text, is_closed_pipe, note};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    match arguments
        .next()
        .and_then(|program| run_service::program_of_link(&program))
    {
        Some(run_service::Program::NodeAgent) => return node_agent::run(arguments),
        Some(service) => {
            let flags = arguments.collect();
            let service = run_service::run(run_service::Arguments { service, flags });
            return run(async { service.await.map(|()| ExitCode::SUCCESS) });
        }
        None => {}
    }
    // The agent and its helpers run before any other setup, and start their own runtime if they
    // need one.
    if arguments
        .next()
        .is_some_and(|argument| argument == node_agent::SUBCOMMAND)
    {
        return node_agent::run(arguments);
    }
    let cli = Cli::parse();
    if let Command::Healthcheck(arguments) = &cli.command {
        return to_exit_code(healthcheck::run(arguments).map(|()| ExitCode::SUCCESS));
    }
    run(dispatch(cli))
}

/// Runs a command on a new runtime.
fn run(command: impl Future<Output = anyhow::Result<ExitCode>>) -> ExitCode {
    let runtime = match hayward_service::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return to_exit_code(Err(error.into())),
    };
    // Agents end with the thread that spawned them. The main thread lives as long as the process.
    let result = runtime.block_on(command);
    // A blocked read of standard input must not delay the exit.
    runtime.shutdown_background();
    to_exit_code(result)
}

fn to_exit_code(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("hayward: {}", error_text::describe(&error)));
            ExitCode::FAILURE
        }
    }
}

async fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    let out = Output::new(cli.json);
    match cli.command {
        Command::Up(arguments) => return up::run(arguments, cli.state).await,
        Command::Demo(arguments) => return demo::run(arguments).await,
        Command::Bench(arguments) => return bench::run(arguments).await,
        Command::Simulate(arguments) => simulate::run(out, &arguments)?,
        Command::Prepare(arguments) => return prepare::run(arguments).await,
        Command::Token(arguments) => token::run(out, cli.state, arguments)?,
        Command::Backup(arguments) => backup::run(out, cli.state, arguments).await?,
        Command::Restore(arguments) => restore::run(out, cli.state, arguments).await?,
        Command::Plan(arguments) => return plan::run(&arguments),
        Command::Fleet(command) => {
            return dispatch_fleet_command(*command, |access| {
                Session::new(out, cli.state.clone(), access)
            })
            .await;
        }
        Command::Run(arguments) => run_service::run(arguments).await?,
        Command::Config(arguments) => config::run(out, arguments)?,
        Command::Completion(arguments) => completion::run(&arguments, Cli::command())?,
        Command::Healthcheck(arguments) => healthcheck::run(&arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn dispatch_fleet_command(
    command: FleetCommand,
    session: impl Fn(Access) -> Session,
) -> anyhow::Result<ExitCode> {
    match command {
        FleetCommand::Submit(it) => {
            return submit::run(session(it.access), it.arguments, parse_submit_again).await;
        }
        FleetCommand::Watch(it) => return watch::run(session(it.access), it.arguments).await,
        FleetCommand::Move(it) => return moves::start_move(session(it.access), it.arguments).await,
        FleetCommand::Restart(it) => return moves::restart(session(it.access), it.arguments).await,
        FleetCommand::Service(it) => return service::run(session(it.access), it.arguments).await,
        FleetCommand::Reserve(it) => return reserve::run(session(it.access), it.arguments).await,
        FleetCommand::Replay(it) => return replay::run(session(it.access), it.arguments).await,
        FleetCommand::Status(it) => return status::run(session(it.access)).await,
        FleetCommand::Doctor(it) => return doctor::run(session(it.access)).await,
        FleetCommand::Accounts(it) => accounts::run(session(it.access), it.arguments).await?,
        FleetCommand::Audit(it) => return audit::run(session(it.access), it.arguments).await,
        FleetCommand::Preflight(it) => {
            return preflight::run(session(it.access), it.arguments).await;
        }
        FleetCommand::Apps(it) => apps::print_list(session(it.access), it.arguments).await?,
        FleetCommand::App(it) => apps::show_or_remove(session(it.access), it.arguments).await?,
        FleetCommand::Jobs(it) => jobs::run(session(it.access), it.arguments).await?,
        FleetCommand::Job(it) => job::run(session(it.access), it.arguments).await?,
        FleetCommand::Logs(it) => logs::run(session(it.access), it.arguments).await?,
        FleetCommand::Tasks(it) => tasks::run(session(it.access), it.arguments).await?,
        FleetCommand::Task(it) => task::run(session(it.access), it.arguments).await?,
        FleetCommand::Cancel(it) => cancel::run(session(it.access), it.arguments).await?,
        FleetCommand::Signal(it) => signal::run(session(it.access), it.arguments).await?,
        FleetCommand::Explain(it) => explain::run(session(it.access), it.arguments).await?,
        FleetCommand::Timeline(it) => timeline::run(session(it.access), it.arguments).await?,
        FleetCommand::Reservations(it) => reserve::list(session(it.access), it.arguments).await?,
        FleetCommand::Release(it) => reserve::release(session(it.access), it.arguments).await?,
        FleetCommand::Nodes(it) => nodes::run(session(it.access), &it.arguments).await?,
        FleetCommand::Node(it) => node::run(session(it.access), it.arguments).await?,
        FleetCommand::Orchestrators(it) => {
            orchestrators::run(session(it.access), it.arguments).await?;
        }
        FleetCommand::Pool(it) => worker_pool::run(session(it.access), it.arguments).await?,
        FleetCommand::Enrol(it) => enrol::run(session(it.access), it.arguments).await?,
        FleetCommand::Block(it) => block::block(session(it.access), it.arguments).await?,
        FleetCommand::Unblock(it) => block::unblock(session(it.access), it.arguments).await?,
        FleetCommand::Blocks(it) => blocks::run(session(it.access), it.arguments).await?,
        FleetCommand::Shares(it) => shares::run(session(it.access)).await?,
        FleetCommand::Planners(it) => planners::run(session(it.access)).await?,
        FleetCommand::Queues(it) => queues::run(session(it.access), it.arguments).await?,
        FleetCommand::Load(it) => load::run(session(it.access)).await?,
        FleetCommand::Allocations(it) => allocations::run(session(it.access), it.arguments).await?,
        FleetCommand::Containers(it) => containers::run(session(it.access), it.arguments).await?,
        FleetCommand::Rounds(it) => rounds::run(session(it.access), it.arguments).await?,
        FleetCommand::WhatIf(it) => what_if::run(session(it.access), it.arguments).await?,
        FleetCommand::Policy(it) => policy::run(session(it.access), it.arguments).await?,
    }
    Ok(ExitCode::SUCCESS)
}
