//! Typed indices of the entities of a round, and a vector for each type of index.

use std::{
    fmt::Debug,
    hash::Hash,
    marker::PhantomData,
    num::NonZeroU32,
    ops::{Index, IndexMut},
};

/// Index of one kind of entity.
pub(crate) trait Ix: Copy + Ord + Hash + Debug {
    fn new(index: usize) -> Self;

    fn index(self) -> usize;

    fn next(self) -> Self {
        Self::new(self.index() + 1)
    }

    fn previous(self) -> Option<Self> {
        self.index().checked_sub(1).map(Self::new)
    }
}

macro_rules! index_types {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        // The stored number is the index plus one, so that an `Option` of it has the same size.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub(crate) struct $name(NonZeroU32);

        impl Ix for $name {
            // Entities are far fewer than 2^32.
            #[inline]
            fn new(index: usize) -> Self {
                let index = u32::try_from(index).unwrap_or(u32::MAX);
                Self(NonZeroU32::MIN.saturating_add(index))
            }

            #[inline]
            fn index(self) -> usize {
                self.0.get() as usize - 1
            }
        }
    )*};
}

index_types! {
    /// Row of a node.
    NodeIx,
    /// Row of a work item.
    WorkIx,
    /// Row of an allocation.
    AllocIx,
    /// Shape of work: home pool, quanta and size of a process.
    ShapeIx,
    /// Row of a pool. The root pool of a tree identifies the tree.
    PoolIx,
    /// Row of a class.
    ClassIx,
    /// Row of a user.
    UserIx,
}

// A position in a list is a `usize`. Entities have types of their own.
impl Ix for usize {
    #[inline]
    fn new(index: usize) -> Self {
        index
    }

    #[inline]
    fn index(self) -> usize {
        self
    }
}

/// `Vec` that is indexed by one kind of entity.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TypedVec<I, T> {
    rows: Vec<T>,
    index: PhantomData<fn() -> I>,
}

impl<I: Ix, T> TypedVec<I, T> {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns `len` rows that are equal to `row`.
    pub fn filled(row: T, len: usize) -> Self
    where
        T: Clone,
    {
        Self::from(vec![row; len])
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn get(&self, index: I) -> Option<&T> {
        self.rows.get(index.index())
    }

    pub fn get_mut(&mut self, index: I) -> Option<&mut T> {
        self.rows.get_mut(index.index())
    }

    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.rows.iter()
    }

    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.rows.iter_mut()
    }

    pub fn clear(&mut self) {
        self.rows.clear();
    }

    /// Returns the indices of all rows in ascending order.
    pub fn indices(
        &self,
    ) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + Clone + use<I, T> {
        (0..self.rows.len()).map(I::new)
    }

    /// Returns the rows with their indices in ascending order.
    pub fn enumerate(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        let rows = self.rows.iter().enumerate();
        rows.map(|(index, row)| (I::new(index), row))
    }

    /// Appends a row and returns its index.
    pub fn push(&mut self, row: T) -> I {
        self.rows.push(row);
        I::new(self.rows.len() - 1)
    }

    pub fn reserve_exact(&mut self, additional: usize) {
        self.rows.reserve_exact(additional);
    }

    pub fn resize(&mut self, len: usize, row: T)
    where
        T: Clone,
    {
        self.rows.resize(len, row);
    }

    /// Returns the index of the first row that does not match. All rows that match come first.
    pub fn partition_point(&self, matches: impl FnMut(&T) -> bool) -> I {
        I::new(self.rows.partition_point(matches))
    }

    pub fn resize_with(&mut self, len: usize, row: impl FnMut() -> T) {
        self.rows.resize_with(len, row);
    }
}

impl<I, T> Default for TypedVec<I, T> {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl<I, T: Debug> Debug for TypedVec<I, T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.rows.fmt(formatter)
    }
}

impl<I, T> From<Vec<T>> for TypedVec<I, T> {
    fn from(rows: Vec<T>) -> Self {
        Self {
            rows,
            index: PhantomData,
        }
    }
}

impl<'a, I, T> IntoIterator for &'a TypedVec<I, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.iter()
    }
}

impl<I, T> FromIterator<T> for TypedVec<I, T> {
    fn from_iter<R: IntoIterator<Item = T>>(rows: R) -> Self {
        Self::from(Vec::from_iter(rows))
    }
}

impl<I, T> Extend<T> for TypedVec<I, T> {
    fn extend<R: IntoIterator<Item = T>>(&mut self, rows: R) {
        self.rows.extend(rows);
    }
}

impl<I: Ix, T> Index<I> for TypedVec<I, T> {
    type Output = T;

    #[inline]
    fn index(&self, index: I) -> &T {
        &self.rows[index.index()]
    }
}

impl<I: Ix, T> IndexMut<I> for TypedVec<I, T> {
    #[inline]
    fn index_mut(&mut self, index: I) -> &mut T {
        &mut self.rows[index.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typed_vector_is_read_by_the_indices_it_returns() {
        let mut nodes: TypedVec<NodeIx, &str> = TypedVec::default();
        let first = nodes.push("a");
        let second = nodes.push("b");
        nodes[second] = "c";
        assert_eq!((nodes[first], nodes[second]), ("a", "c"));
        assert!(nodes.enumerate().eq([(first, &"a"), (second, &"c")]));
        assert!(nodes.indices().eq([NodeIx::new(0), NodeIx::new(1)]));
        assert_eq!(nodes.get(NodeIx::new(2)), None);
    }
}
