//! Sizes with several dimensions: a process must fit in each of them, a part of a GPU is on one
//! GPU, and shares are counted in quanta (D6).

use std::collections::BTreeMap;

use hayward_vocabulary::{Quantum, Size};

use super::fixture::{Fixture, GIB, share};
use crate::{Fault, Reason, check, input::settings::Settings, output::plan::Unblock};

#[test]
fn a_part_of_a_gpu_is_on_one_gpu() {
    let mut fixture = Fixture::eager().nodes(&[16]);
    fixture.node("n00").capacity.gpu_milli = 2_000;
    fixture.job("parts", "a", 1).size.gpu_milli = 600;
    let plan = fixture.step();
    // 2,000 thousandths in total would be enough for three parts of 600.
    assert_eq!(share(&plan, "parts").current, 2);
    let mut gpus: Vec<u64> = plan
        .grants
        .iter()
        .flat_map(|grant| grant.gpus.clone())
        .collect();
    gpus.sort_unstable();
    assert_eq!(gpus, [0, 1]);
    fixture.job("small", "b", 1).size.gpu_milli = 400;
    fixture.job("whole", "c", 1).size.gpu_milli = 1_000;
    let plan = fixture.step();
    assert_eq!(
        share(&plan, "small").current,
        2,
        "one part fits on the rest of each GPU"
    );
    assert_eq!(share(&plan, "whole").current, 0);
}

#[test]
fn the_check_refuses_two_parts_that_exceed_one_gpu() {
    let mut fixture = Fixture::eager().nodes(&[16]);
    fixture.node("n00").capacity.gpu_milli = 2_000;
    fixture.job("parts", "a", 1).size.gpu_milli = 600;
    let mut plan = fixture.plan();
    for grant in &mut plan.grants {
        grant.gpus = vec![1];
    }
    let violations = check(&fixture.snapshot, &plan).unwrap_err();
    assert!(matches!(violations[0].fault, Fault::WrongGpus { .. }));
    assert_eq!(violations.len(), 1);
}

#[test]
fn users_get_even_shares_of_their_dominant_dimension() {
    for settings in [Settings::reference(), Settings::default()] {
        let mut fixture = Fixture::eager().nodes(&[8, 8]);
        fixture.snapshot.tunables.settings = settings;
        fixture.snapshot.quantum = Quantum(Size {
            cpu_milli: 1_000,
            ..Size::memory(GIB)
        });
        for node in ["n00", "n01"] {
            fixture.node(node).capacity.cpu_milli = 8_000;
        }
        fixture.job("cpu", "a", 1).size.cpu_milli = 2_000;
        fixture.job("memory", "b", 2).size.cpu_milli = 100;
        let plan = fixture.step();
        let quanta_and_processes =
            ["cpu", "memory"].map(|id| (share(&plan, id).quanta, share(&plan, id).current));
        assert_eq!(quanta_and_processes, [(2, 4), (2, 4)]);
    }
}

#[test]
fn users_get_even_shares_of_their_dominant_dimension_with_gpus() {
    for settings in [Settings::reference(), Settings::default()] {
        let mut fixture = Fixture::eager().nodes(&[16, 16]);
        fixture.snapshot.tunables.settings = settings;
        fixture.snapshot.quantum = Quantum(Size {
            cpu_milli: 1_000,
            gpu_milli: 250,
            ..Size::memory(GIB)
        });
        for node in ["n00", "n01"] {
            let capacity = &mut fixture.node(node).capacity;
            (capacity.cpu_milli, capacity.gpu_milli) = (16_000, 4_000);
        }
        fixture.job("cpu", "a", 1).size.cpu_milli = 2_000;
        fixture.job("gpu", "b", 1).size.gpu_milli = 1_000;
        fixture.job("memory", "c", 2);
        let plan = fixture.step();
        let quanta = ["cpu", "gpu", "memory"].map(|id| {
            let share = share(&plan, id);
            share.quanta * share.current
        });
        // Each work gets a third of 32 quanta, with a deviation of at most one process.
        let is_near_a_third = |quanta: &u64| (8..=12).contains(quanta);
        assert!(quanta.iter().all(is_near_a_third), "{quanta:?}");
        assert_eq!(quanta.iter().sum::<u64>(), 32);
    }
}

#[test]
fn no_gpu_is_granted_twice_while_the_fleet_changes() {
    let mut fixture = Fixture::eager().nodes(&[16, 16, 16]);
    for node in ["n00", "n01", "n02"] {
        fixture.node(node).capacity.gpu_milli = 4_000;
    }
    let sizes = [300, 500, 700, 1_000, 2_000, 0, 250];
    for index in 0..40_usize {
        let milli = sizes[index % sizes.len()];
        let demand = fixture.job(&format!("j{index:02}"), &format!("u{}", index % 4), 1);
        (demand.size.gpu_milli, demand.max_processes) = (milli, 1 + index as u64 % 3);
        fixture.step();
        if index % 3 == 2 {
            fixture.snapshot.demand.pop_first();
        }
        // Used thousandths by node and GPU.
        let mut used: BTreeMap<(String, u64), u64> = BTreeMap::new();
        for allocation in fixture.snapshot.allocations.values() {
            let milli = allocation.size.gpu_milli;
            let gpu_count = if milli < 1_000 {
                u64::from(milli > 0)
            } else {
                milli / 1_000
            };
            assert_eq!(allocation.gpus.len() as u64, gpu_count, "{allocation:?}");
            for gpu in &allocation.gpus {
                *used.entry((allocation.node.to_string(), *gpu)).or_default() += milli.min(1_000);
            }
        }
        assert!(used.values().all(|milli| *milli <= 1_000), "{used:?}");
        assert!(used.keys().all(|(_, gpu)| *gpu < 4), "{used:?}");
    }
}

#[test]
fn a_resource_that_no_node_offers_is_named_in_the_verdict_and_the_unblock() {
    let mut fixture = Fixture::eager().nodes(&[16, 16]);
    let add_job_with_extra = |fixture: &mut Fixture, id: &str, name: &str| {
        let size = &mut fixture.job(id, "a", 1).size;
        size.extras.insert(name.to_owned(), 1);
    };
    add_job_with_extra(&mut fixture, "engine", "docker");
    add_job_with_extra(&mut fixture, "licensed", "licence");
    fixture.job("learns", "a", 1).size.gpu_milli = 500;
    let capacity = &mut fixture.node("n01").capacity;
    capacity.extras.insert("docker".to_owned(), 5);
    let plan = fixture.step();
    assert!(
        plan.grants
            .iter()
            .all(|grant| grant.work.as_str() == "engine")
    );
    for (id, name) in [("licensed", "licence"), ("learns", "gpu")] {
        let verdict = &plan.verdicts[id];
        assert_eq!(verdict.reason, Reason::NoHostLargeEnough);
        let named = format!("offers `{name}`");
        assert!(verdict.detail.contains(&named), "{verdict:?}");
        let name = name.to_owned();
        assert_eq!(verdict.unblock, Some(Unblock::OfferResource { name }));
    }
}

#[test]
fn a_node_that_lost_its_gpus_takes_work_without_gpus() {
    let mut fixture = Fixture::eager().nodes(&[4]);
    fixture.node("n00").capacity.gpu_milli = 1_000;
    fixture.job("learns", "a", 1).size.gpu_milli = 1_000;
    fixture.step();
    fixture.node("n00").capacity.gpu_milli = 0;
    fixture.service("plain", "b", 1);
    let plan = fixture.plan();
    assert_eq!(share(&plan, "plain").current, 1);
    assert_eq!(check(&fixture.snapshot, &plan), Ok(()));
}
