//! Compact list of row numbers, as 32-bit integers.

/// Numbers in the order in which they were inserted.
#[derive(Default, Clone, PartialEq, Eq, Debug)]
pub(crate) struct IdList(Vec<u32>);

impl IdList {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator + Clone {
        self.0.iter().map(|number| *number as usize)
    }

    pub fn get(&self, position: usize) -> Option<usize> {
        self.0.get(position).map(|number| *number as usize)
    }

    pub fn first(&self) -> Option<usize> {
        self.get(0)
    }

    pub fn last(&self) -> Option<usize> {
        self.0.last().map(|number| *number as usize)
    }

    /// Number of leading items that match.
    pub fn partition_point(&self, is_so: impl Fn(usize) -> bool) -> usize {
        self.0.partition_point(|number| is_so(*number as usize))
    }

    pub fn insert(&mut self, position: usize, number: usize) {
        self.0.insert(position, small(number));
    }

    pub fn remove(&mut self, position: usize) {
        self.0.remove(position);
    }

    /// Removes a number that occurs at most once.
    pub fn remove_number(&mut self, number: usize) {
        let number = small(number);
        if let Some(position) = self.0.iter().position(|other| *other == number) {
            self.0.remove(position);
        }
    }
}

/// Rows are far fewer than 2^32.
fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl FromIterator<usize> for IdList {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Self {
        Self(numbers.into_iter().map(small).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_an_absent_number_changes_nothing() {
        let mut numbers = IdList::from_iter([7, 3, 9]);
        numbers.insert(1, 5);
        for number in [3, 8] {
            numbers.remove_number(number);
        }
        assert!(numbers.iter().eq([7, 5, 9]));
        numbers.remove(0);
        assert_eq!((numbers.first(), numbers.last()), (Some(5), Some(9)));
        assert_eq!(numbers.partition_point(|number| number < 9), 1);
    }
}
