//! In which order messages are handed over: those of one partition after each other.
//!
//! librdkafka keeps a list for each partition, and walks it three times: to send, to confirm, to free. Messages that lie
//! in memory as they stand in their list are a third cheaper there, as the processor sees them coming. Kafka knows no
//! order between partitions; within one it stays, but for messages that may go anywhere: they keep their order among each
//! other, and follow those with a key. Which partition a message goes to is librdkafka's decision all the same: here it is
//! only foreseen. Should that be wrong, as the topic was given other partitions since, messages of one key still go in
//! their order, as they are always taken for the same partition.

use std::ptr::null_mut;

use super::library::{Library, Partitioner};
use super::outgoing::Rows;

/// Messages that are looked at to see whether it pays.
const SAMPLE: usize = 64;
/// Messages of the sample that go elsewhere than the one before them, from which on it pays.
const CHANGES: usize = SAMPLE / 8;
/// Partitions that are told apart: more would each get too few messages of a block.
const MOST: i32 = 256;
/// As much of a key as is looked at. librdkafka refuses longer ones, before it would choose a partition for them, and
/// one of its functions ends the process at 4 GiB.
const LONGEST: usize = i32::MAX as usize;

/// The known partitions of a topic.
pub struct Spread {
    pub topic: String,
    partitions: i32,
    partitioner: Partitioner,
    /// Messages without a key, or with an empty one, go anywhere; otherwise these are keys like others.
    none_anywhere: bool,
    empty_anywhere: bool,
}

impl Spread {
    /// Of a topic with so many partitions, and librdkafka's property `partitioner`; `None` if nothing can be foreseen.
    pub fn of(
        library: &Library,
        topic: String,
        partitions: i32,
        partitioner: &str,
    ) -> Option<Spread> {
        let of_key = match partitioner.trim_end_matches("_random") {
            "murmur2" => library.msg_partitioner_murmur2,
            "consistent" => library.msg_partitioner_consistent,
            "fnv1a" => library.msg_partitioner_fnv1a,
            _ => return None,
        };
        (2..=MOST).contains(&partitions).then_some(Spread {
            topic,
            partitions,
            partitioner: of_key,
            none_anywhere: partitioner.ends_with("_random"),
            empty_anywhere: partitioner == "consistent_random",
        })
    }

    /// Where the message will go. Those that may go anywhere stay together: librdkafka, too, sends them to one partition
    /// for a while.
    fn partition(&self, rows: &Rows<'_>, row: usize) -> usize {
        let key = match rows.key(row) {
            None if self.none_anywhere => return self.partitions as usize,
            Some([]) if self.empty_anywhere => return self.partitions as usize,
            key => key.unwrap_or_default(),
        };
        let (start, size, none) = (key.as_ptr().cast(), key.len().min(LONGEST), null_mut());
        // Safety: so many bytes are there, and these three look at nothing else but the number of partitions.
        let found =
            unsafe { (self.partitioner)(null_mut(), start, size, self.partitions, none, none) };
        usize::try_from(found).map_or(0, |found| found.min(self.partitions as usize))
    }

    fn pays(&self, rows: &Rows<'_>) -> bool {
        let sample: Vec<usize> = (0..rows.len().min(SAMPLE))
            .map(|row| self.partition(rows, row))
            .collect();
        let changes = sample.windows(2).filter(|pair| pair[0] != pair[1]).count();
        changes >= CHANGES
    }

    /// All rows, by partition; `None` if they may as well stay as they are.
    pub fn order(&self, rows: &Rows<'_>) -> Option<Vec<u32>> {
        if !self.pays(rows) {
            return None;
        }
        let places: Vec<u16> = (0..rows.len())
            .map(|row| self.partition(rows, row) as u16)
            .collect();
        let mut starts = vec![0; self.partitions as usize + 2];
        for &place in &places {
            starts[place as usize + 1] += 1;
        }
        for place in 1..starts.len() {
            starts[place] += starts[place - 1];
        }
        let mut order = vec![0; places.len()];
        for (row, &place) in places.iter().enumerate() {
            let next = &mut starts[place as usize];
            order[*next] = row as u32;
            *next += 1;
        }
        Some(order)
    }
}
