//! Where the values of one key stand in many records.

/// Where a value begins, and its bytes.
pub struct Extent {
    pub start: i64,
    pub length: i64,
}

/// The values of one key, in the order of their rows.
pub struct Entries {
    /// Rows without a value take no place.
    pub extents: Vec<Extent>,
    /// The row of each value, rising; empty as long as value i is that of row i.
    rows: Vec<i64>,
    /// The row behind the last one that has a value.
    next: usize,
}

impl Entries {
    pub fn with_room(rows: usize) -> Entries {
        Entries {
            extents: Vec::with_capacity(rows),
            rows: Vec::new(),
            next: 0,
        }
    }

    /// How many rows have a value.
    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// Whether this row, the last one so far, has a value.
    #[inline(always)]
    pub fn has(&self, row: usize) -> bool {
        self.next > row
    }

    /// Adds the value of this row, which stands at `start..stop`, unless the row has one: then it is not added.
    #[inline(always)]
    pub fn put(&mut self, start: usize, stop: usize, row: usize) -> bool {
        let without_gaps = self.next == row && self.rows.is_empty();
        if !without_gaps && !self.put_behind_gap(row) {
            return false;
        }
        self.next = row + 1;
        self.extents.push(Extent {
            start: start as i64,
            length: (stop - start) as i64,
        });
        true
    }

    /// The rows that have a value.
    pub fn rows(&self) -> impl Iterator<Item = usize> {
        (0..self.extents.len()).map(|place| self.rows.get(place).map_or(place, |row| *row as usize))
    }

    /// Lets go of the values whose places are false here.
    pub fn keep(&mut self, places: &[bool]) {
        if self.rows.is_empty() {
            self.rows.extend(0..self.extents.len() as i64);
        }
        let mut kept = places.iter();
        self.rows.retain(|_| kept.next() == Some(&true));
        let mut kept = places.iter();
        self.extents.retain(|_| kept.next() == Some(&true));
    }

    /// Lets go of the values from this row on.
    pub fn take_back(&mut self, from: usize) {
        while self.next > from {
            self.extents.pop();
            self.rows.pop();
            self.next = match self.rows.last() {
                Some(last) => *last as usize + 1,
                None => self.extents.len(),
            };
        }
    }

    #[inline(never)]
    fn put_behind_gap(&mut self, row: usize) -> bool {
        if self.has(row) {
            return false;
        }
        if self.rows.is_empty() {
            self.rows.extend(0..self.extents.len() as i64);
        }
        self.rows.push(row as i64);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_taken_back_leave_gaps_as_they_were() {
        for rows in [&[0, 1, 2, 3][..], &[0, 2, 3, 7], &[4, 5], &[]] {
            for from in 0..9 {
                let mut entries = Entries::with_room(0);
                for row in rows {
                    assert!(entries.put(*row, row + 1, *row));
                    assert!(!entries.put(9, 10, *row));
                }
                entries.take_back(from);
                let kept: Vec<usize> = rows.iter().copied().filter(|row| *row < from).collect();
                assert_eq!(entries.rows().collect::<Vec<_>>(), kept);
                assert_eq!(entries.len(), kept.len());
                assert!(entries.put(9, 10, 9));
                assert_eq!(entries.rows().last(), Some(9));
            }
        }
    }
}
