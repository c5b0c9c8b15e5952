//! Which column is that of a key.

use std::collections::HashMap;

use super::entries::Extent;

/// Columns up to which looking at each is quicker than asking a map.
pub const FEW: usize = 12;

/// The places of keys among the columns of a table.
#[derive(Default)]
pub struct Places(HashMap<Vec<u8>, usize>);

impl Places {
    /// The place of this key; `keys` are those of all columns.
    pub fn find<'a>(
        &self,
        key: &[u8],
        mut keys: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Option<usize> {
        if keys.len() <= FEW {
            keys.position(|own| own == key)
        } else {
            self.0.get(key).copied()
        }
    }

    pub fn add(&mut self, key: &[u8], place: usize) {
        self.0.insert(key.to_vec(), place);
    }

    pub fn remove(&mut self, key: &[u8]) {
        self.0.remove(key);
    }
}

/// Rows that a column at this place has room for from the start, if so many rows were read from so many bytes: strangers
/// may send a key of its own in each record, so that columns take no more than records do.
pub fn room(place: usize, rows: usize, bytes: usize) -> usize {
    let is_small = place < FEW || (place + 1) * rows * size_of::<Extent>() <= bytes;
    if is_small { rows } else { 0 }
}
