//! B4, I16: whether a pool can do without one more node. Whoever empties one knows better only if
//! they say so.

/// A pool as a drain of one more of its working nodes finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// All nodes of the pool.
    pub size: u64,
    /// Those that take no work already, for whatever reason.
    pub out: u64,
    /// At least so many have to take work.
    pub floor: u64,
    /// At most this part may be out, in percent. Two nodes always may.
    pub percent: u64,
}

/// Why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooFew {
    Floor { left: u64 },
    Fraction { out: u64, most: u64 },
}

/// As of the brake: a third node of a small pool is an incident, the second is not.
const ALWAYS: u64 = 2;

/// # Errors
/// When too few nodes would be left.
pub fn for_one_more(room: Room) -> Result<(), TooFew> {
    let out = room.out + 1;
    let left = room.size.saturating_sub(out);
    if left < room.floor {
        return Err(TooFew::Floor { left });
    }
    let most = (room.size.saturating_mul(room.percent) / 100).max(ALWAYS);
    if out > most {
        return Err(TooFew::Fraction { out, most });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_of_nodes_that_may_be_out() {
        let ask = |size, out| {
            for_one_more(Room {
                size,
                out,
                floor: 1,
                percent: 25,
            })
        };
        // (size, out before) -> answer
        let table = [
            ((1, 0), Err(TooFew::Floor { left: 0 })),
            ((2, 0), Ok(())),
            ((2, 1), Err(TooFew::Floor { left: 0 })),
            ((3, 1), Ok(())),
            ((4, 2), Err(TooFew::Fraction { out: 3, most: 2 })),
            ((12, 2), Ok(())),
            ((12, 3), Err(TooFew::Fraction { out: 4, most: 3 })),
            ((1000, 249), Ok(())),
            (
                (1000, 250),
                Err(TooFew::Fraction {
                    out: 251,
                    most: 250,
                }),
            ),
        ];
        for ((size, out), answer) in table {
            assert_eq!(ask(size, out), answer, "{out} of {size}");
        }
    }

    proptest! {
        #[test]
        fn however_many_are_asked_for_the_pool_keeps_its_floor_and_its_part(
            size in 0..500_u64, floor in 0..20_u64, percent in 0..=100_u64,
        ) {
            let mut out = 0;
            while for_one_more(Room { size, out, floor, percent }).is_ok() {
                out += 1;
            }
            prop_assert!(out == 0 || size - out >= floor);
            prop_assert!(out <= ALWAYS || out * 100 <= size * percent);
        }
    }
}
