//! List of indices that returns its items by value.

use crate::ids::Ix;

/// Indices in the order that the caller chose by inserting at a position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct IdList<I>(Vec<I>);

impl<I> Default for IdList<I> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<I: Ix> IdList<I> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + Clone {
        self.0.iter().copied()
    }

    pub fn get(&self, position: usize) -> Option<I> {
        self.0.get(position).copied()
    }

    pub fn first(&self) -> Option<I> {
        self.get(0)
    }

    pub fn last(&self) -> Option<I> {
        self.0.last().copied()
    }

    /// Returns the number of leading items that match.
    pub fn partition_point(&self, predicate: impl Fn(I) -> bool) -> usize {
        self.0.partition_point(|item| predicate(*item))
    }

    pub fn insert(&mut self, position: usize, item: I) {
        self.0.insert(position, item);
    }

    pub fn remove(&mut self, position: usize) {
        self.0.remove(position);
    }

    /// Removes an item that occurs at most once.
    pub fn remove_item(&mut self, item: I) {
        if let Some(position) = self.0.iter().position(|other| *other == item) {
            self.0.remove(position);
        }
    }
}

impl<I> FromIterator<I> for IdList<I> {
    fn from_iter<R: IntoIterator<Item = I>>(items: R) -> Self {
        Self(items.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_inserted_and_removed_by_position_or_value() {
        let mut items = IdList::<usize>::from_iter([7, 3, 9]);
        items.insert(1, 5);
        for item in [3, 8] {
            items.remove_item(item);
        }
        assert!(items.iter().eq([7, 5, 9]));
        items.remove(0);
        assert_eq!((items.first(), items.last()), (Some(5), Some(9)));
        assert_eq!(items.partition_point(|item| item < 9), 1);
    }
}
