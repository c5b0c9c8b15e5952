//! Strings on their way out, in one block of bytes.
//!
//! The block begins with the strings' starts and lengths, 64-bit numbers, one of each a row; the bytes follow. Where a
//! row has no string the length is below 0.

/// Bytes of a block for strings of these lengths.
pub fn block_size(lengths: &[i64]) -> usize {
    let sizes = lengths
        .iter()
        .map(|length| usize::try_from(*length).unwrap_or(0));
    lengths.len() * 16 + sizes.sum::<usize>()
}

/// Writes starts and lengths into a block of `block_size` bytes; where the bytes of the strings go.
pub fn place<'a>(block: &'a mut [u8], lengths: &[i64]) -> &'a mut [u8] {
    let (table, out) = block.split_at_mut(lengths.len() * 16);
    let (starts, counts) = table.split_at_mut(lengths.len() * 8);
    let mut at = 0i64;
    let places = starts.chunks_exact_mut(8).zip(counts.chunks_exact_mut(8));
    for ((start, count), length) in places.zip(lengths) {
        start.copy_from_slice(&at.to_ne_bytes());
        count.copy_from_slice(&length.to_ne_bytes());
        at += length.max(&0);
    }
    out
}

/// Writes `bytes` at the beginning of `out`; the rest of it.
#[inline]
pub fn put<'a>(out: &'a mut [u8], bytes: &[u8]) -> &'a mut [u8] {
    let (place, rest) = out.split_at_mut(bytes.len());
    // A call costs more than these few bytes: two copies of a fixed size, which may overlap.
    match bytes.len() {
        16..=32 => put_ends::<16>(place, bytes),
        8..16 => put_ends::<8>(place, bytes),
        0 => {}
        _ => place.copy_from_slice(bytes),
    }
    rest
}

#[inline(always)]
fn put_ends<const SIZE: usize>(place: &mut [u8], bytes: &[u8]) {
    if let (Some(to), Some(from)) = (place.first_chunk_mut::<SIZE>(), bytes.first_chunk()) {
        *to = *from;
    }
    if let (Some(to), Some(from)) = (place.last_chunk_mut::<SIZE>(), bytes.last_chunk()) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_every_length_are_written_whole() {
        let bytes: Vec<u8> = (0..70).collect();
        for length in 0..70 {
            let mut out = [0xFFu8; 80];
            assert_eq!(put(&mut out, &bytes[..length]).len(), 80 - length);
            assert_eq!(out[..length], bytes[..length]);
            assert!(out[length..].iter().all(|byte| *byte == 0xFF));
        }
    }
}
