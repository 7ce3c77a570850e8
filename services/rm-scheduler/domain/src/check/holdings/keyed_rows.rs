//! Rows that are found by key or by number. Other structures refer to a row by its number, which
//! needs less memory than the key.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Map of rows that also have a number each.
#[derive(Debug)]
pub(super) struct KeyedRows<K, V> {
    numbers: FxHashMap<K, u32>,
    /// Rows by number.
    rows: Vec<Row<K, V>>,
    /// Numbers of removed rows, which new rows get.
    free_numbers: Vec<u32>,
}

#[derive(Debug)]
struct Row<K, V> {
    /// `None` if the row was removed.
    key: Option<K>,
    value: V,
}

impl<K, V> Default for KeyedRows<K, V> {
    fn default() -> Self {
        Self {
            numbers: FxHashMap::default(),
            rows: Vec::new(),
            free_numbers: Vec::new(),
        }
    }
}

impl<K: Hash + Eq + Clone, V: Default> KeyedRows<K, V> {
    /// Returns the number of the row of this key. Inserts the row if it is missing.
    pub fn number(&mut self, key: &K) -> u32 {
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        let row = Row {
            key: Some(key.clone()),
            value: V::default(),
        };
        let number = if let Some(number) = self.free_numbers.pop() {
            self.rows[number as usize] = row;
            number
        } else {
            self.rows.push(row);
            u32::try_from(self.rows.len() - 1).expect("fewer rows than there are numbers")
        };
        self.numbers.insert(key.clone(), number);
        number
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        let number = self.numbers.get(key)?;
        Some(self.at(*number))
    }

    pub fn key(&self, number: u32) -> Option<&K> {
        self.rows[number as usize].key.as_ref()
    }

    pub fn at(&self, number: u32) -> &V {
        &self.rows[number as usize].value
    }

    pub fn at_mut(&mut self, number: u32) -> &mut V {
        &mut self.rows[number as usize].value
    }

    /// Removes a row. Its number may be reused.
    pub fn remove(&mut self, number: u32) {
        let row = &mut self.rows[number as usize];
        row.value = V::default();
        if let Some(key) = row.key.take() {
            self.numbers.remove(&key);
            self.free_numbers.push(number);
        }
    }

    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let rows = self.rows.iter();
        rows.filter_map(|row| Some((row.key.as_ref()?, &row.value)))
    }
}
