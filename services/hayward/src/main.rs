//! The `hayward` program: reads the command line and hands over.

use std::process::ExitCode;

use clap::Parser as _;
use hayward::cli::{Asking, Cli, Command};
use hayward::commands::fleet::{
    backup, completion, demo, enrol, healthcheck, node_agent, preflight, prepare, restore, single,
    token, up,
};
use hayward::commands::inspect::{
    allocations, containers, load, plan, planners, queues, replay, rounds, shares, what_if,
};
use hayward::commands::measure::{bench, simulate};
use hayward::commands::operate::{
    audit, block, blocks, doctor, moves, node, nodes, orchestrators, policy, pool, status,
};
use hayward::commands::work::{
    apps, cancel, explain, job, jobs, logs, reserve, service, submit, tasks, timeline, watch,
};
use hayward::connection::{Access, Session};
use hayward::output::{Output, fault, nobody_reads, note};

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    match words.next().and_then(|program| single::called(&program)) {
        Some(single::Name::NodeAgent) => return node_agent::run(words),
        Some(service) => {
            let flags = words.collect();
            let service = single::run(single::Arguments { service, flags });
            return run(async { service.await.map(|()| ExitCode::SUCCESS) });
        }
        None => {}
    }
    // The agent's programs make their own runtime, or none; see there.
    if words.next().is_some_and(|word| word == node_agent::WORD) {
        return node_agent::run(words);
    }
    let cli = Cli::parse();
    if let Command::Healthcheck(arguments) = &cli.command {
        return ended(healthcheck::run(arguments).map(|()| ExitCode::SUCCESS));
    }
    run(dispatch(cli))
}

fn run(what: impl Future<Output = anyhow::Result<ExitCode>>) -> ExitCode {
    let runtime = match hayward_service::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return ended(Err(error.into())),
    };
    // On this thread, which lasts as long as the process: agents end with the thread that made
    // them.
    let result = runtime.block_on(what);
    // A blocked read of standard input must not keep the program.
    runtime.shutdown_background();
    ended(result)
}

fn ended(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) if nobody_reads(&error) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("hayward: {}", fault::describe(&error)));
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
        Command::Asking(asking) => {
            return ask(*asking, |access| {
                Session::new(out, cli.state.clone(), access)
            })
            .await;
        }
        Command::Run(arguments) => single::run(arguments).await?,
        Command::Config(arguments) => single::config(out, arguments)?,
        Command::Completion(arguments) => completion::run(&arguments)?,
        Command::Healthcheck(arguments) => healthcheck::run(&arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn ask(asking: Asking, session: impl Fn(Access) -> Session) -> anyhow::Result<ExitCode> {
    match asking {
        Asking::Submit(it) => return submit::run(session(it.access), it.arguments).await,
        Asking::Watch(it) => return watch::run(session(it.access), it.arguments).await,
        Asking::Move(it) => return moves::start_move(session(it.access), it.arguments).await,
        Asking::Restart(it) => return moves::restart(session(it.access), it.arguments).await,
        Asking::Service(it) => return service::run(session(it.access), it.arguments).await,
        Asking::Reserve(it) => return reserve::run(session(it.access), it.arguments).await,
        Asking::Replay(it) => return replay::run(session(it.access), it.arguments).await,
        Asking::Status(it) => return status::run(session(it.access)).await,
        Asking::Doctor(it) => return doctor::run(session(it.access)).await,
        Asking::Audit(it) => return audit::run(session(it.access), it.arguments).await,
        Asking::Preflight(it) => return preflight::run(session(it.access), it.arguments).await,
        Asking::Apps(it) => apps::list(session(it.access), it.arguments).await?,
        Asking::App(it) => apps::one(session(it.access), it.arguments).await?,
        Asking::Jobs(it) => jobs::run(session(it.access), it.arguments).await?,
        Asking::Job(it) => job::run(session(it.access), it.arguments).await?,
        Asking::Logs(it) => logs::run(session(it.access), it.arguments).await?,
        Asking::Tasks(it) => tasks::run(session(it.access), it.arguments).await?,
        Asking::Cancel(it) => cancel::run(session(it.access), it.arguments).await?,
        Asking::Explain(it) => explain::run(session(it.access), it.arguments).await?,
        Asking::Timeline(it) => timeline::run(session(it.access), it.arguments).await?,
        Asking::Reservations(it) => reserve::list(session(it.access), it.arguments).await?,
        Asking::Release(it) => reserve::release(session(it.access), it.arguments).await?,
        Asking::Nodes(it) => nodes::run(session(it.access), &it.arguments).await?,
        Asking::Node(it) => node::run(session(it.access), it.arguments).await?,
        Asking::Orchestrators(it) => {
            orchestrators::run(session(it.access), it.arguments).await?;
        }
        Asking::Pool(it) => pool::run(session(it.access), it.arguments).await?,
        Asking::Enrol(it) => enrol::run(session(it.access), it.arguments).await?,
        Asking::Block(it) => block::block(session(it.access), it.arguments).await?,
        Asking::Unblock(it) => block::unblock(session(it.access), it.arguments).await?,
        Asking::Blocks(it) => blocks::run(session(it.access), it.arguments).await?,
        Asking::Shares(it) => shares::run(session(it.access)).await?,
        Asking::Planners(it) => planners::run(session(it.access)).await?,
        Asking::Queues(it) => queues::run(session(it.access), it.arguments).await?,
        Asking::Load(it) => load::run(session(it.access)).await?,
        Asking::Allocations(it) => allocations::run(session(it.access), it.arguments).await?,
        Asking::Containers(it) => containers::run(session(it.access), it.arguments).await?,
        Asking::Rounds(it) => rounds::run(session(it.access), it.arguments).await?,
        Asking::WhatIf(it) => what_if::run(session(it.access), it.arguments).await?,
        Asking::Policy(it) => policy::run(session(it.access), it.arguments).await?,
    }
    Ok(ExitCode::SUCCESS)
}
