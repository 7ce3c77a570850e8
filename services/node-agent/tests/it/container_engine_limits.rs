//! Tests of limits and mounts of containers in the engine of this node.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use hayward_container_manager_api::{ContainerState, DesiredEntry};
use hayward_vocabulary::launch::Mount;
use hayward_vocabulary::{Exit, ExitCause, Program};

use crate::agent_process::{Agent, remove_all_entries};
use crate::container_engine::{
    MIB, SOCKET, container_ids, docker_output, entry_in_image, id, is_ready, wait_for_output,
};
use crate::fake_control_plane::FakeControlPlane;

fn start_agent(control: &FakeControlPlane, extra_variables: &[(&str, &str)]) -> Agent {
    let variables = [
        ("HAYWARD_DOCKER_SOCKET", SOCKET),
        ("HAYWARD_DOCKER_NETWORK", "none"),
    ];
    Agent::start(control, &[&variables, extra_variables].concat())
}

async fn wait_for_exit(control: &FakeControlPlane, name: &str) -> Exit {
    let report = control
        .wait_for_state(&id(name), ContainerState::Ended)
        .await;
    report.exit.unwrap()
}

fn entry_with_mounts(name: &str, script: &str, mounts: &[(&Path, &str, bool)]) -> DesiredEntry {
    let mut entry = entry_in_image(name, script);
    if let Program::Container { container, .. } = &mut entry.launch.program {
        container.mounts = mounts
            .iter()
            .map(|(source, target, read_only)| Mount {
                source: source.to_str().unwrap().to_owned(),
                target: (*target).to_owned(),
                read_only: *read_only,
            })
            .collect();
    }
    entry
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_gets_limits_and_no_privileges() {
    if !is_ready() {
        return;
    }
    let control = FakeControlPlane::start().await;
    let _agent = start_agent(&control, &[("HAYWARD_PROCESSES_LIMIT", "77")]);
    let mut entry = entry_in_image("limits", "echo up; sleep 300");
    entry.size.cpu_milli = 250;
    control.set_desired(entry);
    wait_for_output(&control, &id("limits"), "up").await;
    let value_of = |field: &str| {
        let format = format!("{{{{json .HostConfig.{field}}}}}");
        docker_output(&[
            "inspect",
            "--format",
            &format,
            &container_ids(&id("limits")),
        ])
    };
    let memory = (64 * MIB).to_string();
    for (field, value) in [
        ("Memory", memory.as_str()),
        ("MemorySwap", memory.as_str()),
        ("NanoCpus", "250000000"),
        ("PidsLimit", "77"),
        ("Privileged", "false"),
        ("CapAdd", "null"),
        ("CapDrop", r#"["ALL"]"#),
        ("SecurityOpt", r#"["no-new-privileges"]"#),
        ("PidMode", r#""""#),
        ("IpcMode", r#""private""#),
        ("NetworkMode", r#""none""#),
    ] {
        assert_eq!(value_of(field), value, "{field}");
    }
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_stops_at_its_limit() {
    if !is_ready() {
        return;
    }
    let control = FakeControlPlane::start().await;
    let _agent = start_agent(&control, &[("HAYWARD_PROCESSES_LIMIT", "20")]);
    // The shell gives up at the first failed fork.
    let script = "i=0; while [ $i -lt 60 ]; do sleep 300 & i=$((i+1)); echo $i; done; echo all";
    control.set_desired(entry_in_image("forks", script));
    let exit = wait_for_exit(&control, "forks").await;
    assert_ne!(exit.code, Some(0), "{exit:?}");
    wait_for_output(&control, &id("forks"), "19\n").await;
    let text = control.state.borrow().output[&id("forks")].clone();
    assert!(!text.contains("\n20\n") && !text.contains("all"), "{text}");
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_output_and_the_last_line_remain() {
    if !is_ready() {
        return;
    }
    let control = FakeControlPlane::start().await;
    let _agent = start_agent(&control, &[("HAYWARD_OUTPUT_LIMIT_BYTES", "1000")]);
    let script = "head -c 2000000 /dev/zero | tr '\\0' x; echo; echo the end; exit 4";
    control.set_desired(entry_in_image("flood", script));
    assert_eq!(wait_for_exit(&control, "flood").await.code, Some(4));
    let text = control.state.borrow().output[&id("flood")].clone();
    // While it rotates small files, an engine may skip the end of a long line in a followed stream.
    assert!(
        text.contains('x') && text.ends_with("the end\n") && text.matches("the end").count() == 1,
        "the newest output is stored once: {text:?}"
    );
    let folder = control
        .state_dir()
        .join("engine")
        .join(id("flood").as_str());
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let outputs = files.filter(|file| {
        let name = file.file_name();
        let suffix = name.to_str().unwrap().strip_prefix("output");
        suffix.is_some_and(|suffix| suffix.is_empty() || suffix[1..].parse::<u64>().is_ok())
    });
    let stored: u64 = outputs.map(|file| file.metadata().unwrap().len()).sum();
    assert!((500..=1000).contains(&stored), "{stored} bytes on disk");
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_mapped_to_accounts_in_containers() {
    if !is_ready() {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only an agent that is root runs work under other accounts");
        return;
    }
    let control = FakeControlPlane::start().await;
    let entry = entry_in_image("mapped", "id -u; id -g; echo done");
    let user_mapping = format!("{}=4001:4002", entry.user);
    let _agent = start_agent(&control, &[("HAYWARD_RUN_AS_USERS", &user_mapping)]);
    control.set_desired(entry);
    assert_eq!(
        wait_for_exit(&control, "mapped").await.cause,
        ExitCause::Success
    );
    wait_for_output(&control, &id("mapped"), "done").await;
    assert_eq!(
        control.state.borrow().output[&id("mapped")],
        "4001\n4002\ndone\n"
    );
    // Another account that the submission names is refused.
    let mut other = entry_in_image("other", "true");
    if let Program::Container { container, .. } = &mut other.launch.program {
        container.uid = Some(4003);
    }
    control.set_desired(other);
    let exit = wait_for_exit(&control, "other").await;
    assert_eq!(exit.cause, ExitCause::LaunchFailed);
    assert!(exit.message.unwrap().contains("as user 4001, not as 4003"));
    remove_all_entries(&control).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_work_only_where_the_node_permits_them() {
    if !is_ready() {
        return;
    }
    let control = FakeControlPlane::start().await;
    let [permitted, other] = ["srv", "other"].map(|name| control.dir.path().join(name));
    for dir in [&permitted, &other] {
        std::fs::create_dir(dir).unwrap();
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let (data, out) = (permitted.join("data"), permitted.join("out"));
    for dir in [&data, &out] {
        std::fs::create_dir(dir).unwrap();
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    std::fs::write(data.join("file"), "from the node\n").unwrap();
    let mountable = permitted.to_str().unwrap();
    let _agent = start_agent(&control, &[("HAYWARD_DOCKER_MOUNTABLE", mountable)]);
    let script = "cat /in/file; echo x > /in/new || echo cannot; id -u > /out/who; echo done";
    let both: [(&Path, &str, bool); 2] = [(&data, "/in", true), (&out, "/out", false)];
    control.set_desired(entry_with_mounts("mounts", script, &both));
    let exit = wait_for_exit(&control, "mounts").await;
    assert_eq!(exit.cause, ExitCause::Success, "{exit:?}");
    wait_for_output(&control, &id("mounts"), "done").await;
    let text = control.state.borrow().output[&id("mounts")].clone();
    assert!(
        text.contains("from the node\n") && text.contains("cannot"),
        "{text}"
    );
    assert!(!data.join("new").exists());
    assert_eq!(std::fs::read_to_string(out.join("who")).unwrap(), "65534\n");
    control.set_desired(entry_with_mounts(
        "refused",
        "true",
        &[(&other, "/in", true)],
    ));
    let exit = wait_for_exit(&control, "refused").await;
    assert_eq!(
        (exit.cause, exit.cause_code.as_deref()),
        (ExitCause::Node, Some("not_offered"))
    );
    assert!(exit.message.unwrap().contains("docker_mountable"));
    assert!(
        container_ids(&id("refused")).is_empty(),
        "no container was created"
    );
    remove_all_entries(&control).await;
}
