//! Blocks of bytes that are used again and again.
//!
//! A fresh block of more than a few pages comes from the system page by page, at every batch, which costs more than
//! writing into it. So a block that Python has let go of is kept for the next batch.

use std::sync::Mutex;

/// One cache line, the unit of blocks: so a block is aligned for any array.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; LINE]);

const LINE: usize = 64;
/// Blocks that are kept, together, in bytes.
const KEPT_BYTES: usize = 64 << 20;
/// Blocks that are kept, in number.
const KEPT: usize = 32;
/// A block this many times larger than needed is left for a larger batch.
const SLACK: usize = 4;
/// Blocks are as long as powers of two up to here, so that they fit again.
const ROUNDED: usize = 16 << 20;

static POOL: Mutex<Pool> = Mutex::new(Pool {
    blocks: Vec::new(),
    bytes: 0,
});

struct Pool {
    blocks: Vec<Vec<Line>>,
    bytes: usize,
}

/// A block of bytes, always initialised: with zeros, or with its earlier contents.
pub struct Arena {
    lines: Vec<Line>,
    size: usize,
}

impl Arena {
    /// A block of `size` bytes.
    pub fn take(size: usize) -> Arena {
        let lines = size.div_ceil(LINE);
        Arena {
            lines: kept(lines).unwrap_or_else(|| fresh(lines)),
            size,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `lines` are initialised bytes without padding, at least `size` of them.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.size) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and there is no other reference to them.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.size) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        let bytes = lines.len() * LINE;
        let Ok(mut pool) = POOL.lock() else { return };
        if bytes > 0 && pool.blocks.len() < KEPT && pool.bytes + bytes <= KEPT_BYTES {
            pool.bytes += bytes;
            pool.blocks.push(lines);
        }
    }
}

fn kept(lines: usize) -> Option<Vec<Line>> {
    let mut pool = POOL.lock().ok()?;
    let fits = |block: &Vec<Line>| {
        (lines..=lines.saturating_mul(SLACK).max(lines + 64)).contains(&block.len())
    };
    // Of equally long ones the one that came back last: it is likely still in the processor's caches.
    let best = pool
        .blocks
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, block)| fits(block))
        .min_by_key(|(_, block)| block.len())?
        .0;
    let found = pool.blocks.swap_remove(best);
    pool.bytes -= found.len() * LINE;
    Some(found)
}

fn fresh(lines: usize) -> Vec<Line> {
    let rounded = if lines <= ROUNDED / LINE {
        lines.next_power_of_two()
    } else {
        lines
    };
    vec![Line([0; LINE]); rounded]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_long_as_asked_for_and_aligned() {
        for size in [0, 1, 63, 64, 65, 5000, ROUNDED + 1] {
            let mut arena = Arena::take(size);
            assert_eq!(arena.bytes().len(), size);
            assert_eq!(arena.bytes().as_ptr() as usize % LINE, 0);
            arena.bytes_mut().fill(7);
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let blocks: Vec<Arena> = (0..100).map(|_| Arena::take(4 << 20)).collect();
        drop(blocks);
        drop(Arena::take(KEPT_BYTES + 1));
        let pool = POOL.lock().unwrap();
        assert!(pool.blocks.len() <= KEPT && pool.bytes <= KEPT_BYTES);
        assert_eq!(
            pool.bytes,
            pool.blocks
                .iter()
                .map(|block| block.len() * LINE)
                .sum::<usize>()
        );
    }

    #[test]
    fn two_blocks_at_a_time_are_two() {
        let (mut first, mut second) = (Arena::take(100), Arena::take(100));
        first.bytes_mut().fill(1);
        second.bytes_mut().fill(2);
        assert!(first.bytes().iter().all(|byte| *byte == 1));
    }
}
