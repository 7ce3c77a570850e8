//! Tests of the division. Holes are listed by their quanta. An entity is written as `(weight,
//! quanta of one process, wanted processes)`. A demand of 99 or 999 processes is more than ever
//! fits.

use super::*;

const SETTINGS: DivisionSettings = DivisionSettings {
    spread_remainders: false,
    holes_among_rivals: false,
};

fn divide(hole_sizes: &[u64], entities: &[(u64, u64, u64)]) -> Vec<u64> {
    divide_with(SETTINGS, hole_sizes, entities)
}

fn divide_with(
    settings: DivisionSettings,
    hole_sizes: &[u64],
    entities: &[(u64, u64, u64)],
) -> Vec<u64> {
    let mut holes = HoleTable::default();
    for size in hole_sizes {
        holes.add(*size, 1);
    }
    let mut claims = Claims::default();
    for (weight, quanta, wanted) in entities {
        claims.add_entity(*weight, Standing::Even);
        claims.add_demand(*quanta, *wanted);
    }
    claims.apportion(holes, settings);
    claims.granted_processes()
}

#[test]
fn two_passes_divide_the_remainders() {
    assert_eq!(
        divide(&[2, 2, 2, 2, 2, 2, 1, 1, 1], &[(1, 2, 99), (1, 1, 99)]),
        [4, 7]
    );
}

#[test]
fn classes_divide_by_weight_with_remainders_in_sort_order() {
    assert_eq!(divide(&[5; 4], &[(100, 2, 99), (100, 1, 99)]), [6, 8]);
    assert_eq!(
        divide(&[1; 7], &[(100, 1, 99), (100, 1, 99), (100, 1, 99)]),
        [3, 2, 2]
    );
    assert_eq!(divide(&[2; 5], &[(900, 1, 99), (100, 2, 99)]), [8, 1]);
}

#[test]
fn a_satisfied_entity_leaves_the_divisor_once() {
    let granted = divide(&[4, 4, 4, 4], &[(1, 4, 99), (1, 1, 99)]);
    assert_eq!(granted, [2, 8]);
}

#[test]
fn each_entity_gets_one_remainder_before_any_gets_a_second() {
    // The first two entities want little. Further passes divide the quanta that they do not use.
    let claims = [(1, 1, 1), (1, 1, 4), (1, 1, 99), (1, 1, 99), (1, 1, 99)];
    assert_eq!(divide(&[29], &claims), [1, 4, 9, 8, 7]);
    let spread = DivisionSettings {
        spread_remainders: true,
        ..SETTINGS
    };
    assert_eq!(divide_with(spread, &[29], &claims), [1, 4, 8, 8, 8]);
}

#[test]
fn large_processes_get_their_share_of_holes_that_others_cannot_use() {
    // The holes have 1200 quanta: 32 of 8 quanta, and 944 of one quantum. One entity wants
    // processes of 8 quanta, and six want processes of one quantum.
    let holes: Vec<u64> = [vec![8; 32], vec![1; 944]].concat();
    let claims = [vec![(1, 8, 32)], vec![(1, 1, 999); 6]].concat();
    // Without the setting, all entities get a part of the large holes.
    assert!(divide(&holes, &claims)[0] < 15);
    let among_rivals = DivisionSettings {
        holes_among_rivals: true,
        ..SETTINGS
    };
    // A seventh of 1200 quanta is 21 processes of 8 quanta. Quanta left by rounding may go to the
    // large processes as well.
    let large = divide_with(among_rivals, &holes, &claims)[0];
    assert!((21..=24).contains(&large), "{large}");
}
