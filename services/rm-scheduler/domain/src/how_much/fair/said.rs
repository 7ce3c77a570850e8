//! What neighbours are counted for, as the books know it: one entry for all who are counted alike,
//! so that whoever counts them anew looks at as many as differ, and not at each of them.

/// In the order of those it is said of.
#[derive(Default)]
pub(super) struct Said {
    runs: Vec<Run>,
}

/// Neighbours of whom the same is said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub len: usize,
    /// Processes.
    pub counted: u64,
}

impl Said {
    /// In which run this place is, and where in it.
    fn find(&self, place: usize) -> (usize, usize) {
        let mut within = place;
        for (at, run) in self.runs.iter().enumerate() {
            if within < run.len {
                return (at, within);
            }
            within -= run.len;
        }
        (self.runs.len(), within)
    }

    pub fn push(&mut self, counted: u64) {
        match self.runs.last_mut().filter(|run| run.counted == counted) {
            Some(run) => run.len += 1,
            None => self.runs.push(Run { len: 1, counted }),
        }
    }

    /// Somebody comes between the others.
    pub fn insert(&mut self, place: usize, counted: u64) {
        let (at, within) = self.find(place);
        let one = Run { len: 1, counted };
        match self.runs.get_mut(at) {
            None => self.push(counted),
            Some(run) if run.counted == counted => run.len += 1,
            Some(_) if within == 0 => self.runs.insert(at, one),
            Some(run) => {
                let len = run.len - within;
                let rest = Run { len, ..*run };
                run.len = within;
                self.runs.insert(at + 1, rest);
                self.runs.insert(at + 1, one);
            }
        }
    }

    /// Somebody goes; returns what was said of him.
    pub fn remove(&mut self, place: usize) -> Option<u64> {
        let (at, _) = self.find(place);
        let run = self.runs.get_mut(at)?;
        run.len -= 1;
        let counted = run.counted;
        if run.len == 0 {
            self.runs.remove(at);
        }
        Some(counted)
    }

    /// Says this of all, and tells of whom something else was said, by place.
    pub fn renew(
        &mut self,
        runs: impl Iterator<Item = Run> + Clone,
        mut tell: impl FnMut(usize, u64),
    ) {
        // Mostly all is as it was.
        if self.runs.iter().copied().eq(runs.clone()) {
            return;
        }
        let mut known = self.runs.iter().copied();
        let mut before = Run { len: 0, counted: 0 };
        let mut place = 0;
        for mut run in runs.clone() {
            while run.len > 0 {
                if before.len == 0 {
                    let Some(next) = known.next() else { break };
                    before = next;
                }
                let both = run.len.min(before.len);
                if run.counted != before.counted {
                    (place..place + both).for_each(|place| tell(place, run.counted));
                }
                (run.len, before.len, place) = (run.len - both, before.len - both, place + both);
            }
        }
        self.runs.clear();
        self.runs.extend(runs);
    }

    #[cfg(test)]
    pub fn each(&self) -> impl Iterator<Item = u64> {
        let runs = self.runs.iter();
        runs.flat_map(|run| std::iter::repeat_n(run.counted, run.len))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_list_of_what_is_said_of_each(
            first in prop::collection::vec(0..3_u64, 0..9),
            moves in prop::collection::vec((any::<bool>(), 0..9_usize, 0..3_u64), 0..20),
            last in prop::collection::vec(0..3_u64, 30),
        ) {
            let (mut said, mut list) = (Said::default(), first.clone());
            for counted in first {
                said.push(counted);
            }
            for (comes, place, counted) in moves {
                if comes {
                    let place = place.min(list.len());
                    said.insert(place, counted);
                    list.insert(place, counted);
                } else if place < list.len() {
                    prop_assert_eq!(said.remove(place), Some(list.remove(place)));
                }
                prop_assert_eq!(said.each().collect::<Vec<u64>>(), list.clone());
            }
            let last = &last[..list.len()];
            let runs = last.iter().map(|counted| Run { len: 1, counted: *counted });
            said.renew(runs, |place, counted| {
                assert_ne!(list[place], counted);
                list[place] = counted;
            });
            prop_assert_eq!(list, last.to_vec());
            prop_assert_eq!(said.each().collect::<Vec<u64>>(), last.to_vec());
        }
    }
}
