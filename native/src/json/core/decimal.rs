//! Decimal digits in bytes, eight at a time, and the float that is nearest to a decimal number.

use crate::columnar::core::cells::EXACT;

/// Powers of ten that a float holds exactly.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];
const ONES: u64 = u64::MAX / 255;

/// Where the digits from `at` on end, and `digits` with these at its end; more than nineteen may wrap round.
#[inline(always)]
pub fn digits(bytes: &[u8], at: usize, digits: u64) -> (usize, u64) {
    let (mut at, mut digits) = (at, digits);
    while let Some(digit @ b'0'..=b'9') = bytes.get(at) {
        digits = digits
            .wrapping_mul(10)
            .wrapping_add(u64::from(digit - b'0'));
        at += 1;
    }
    (at, digits)
}

/// The same of many digits, eight at a time.
#[inline(always)]
pub fn many_digits(bytes: &[u8], at: usize, number: u64) -> (usize, u64) {
    let (mut at, mut number) = (at, number);
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let eight = u64::from_le_bytes(*eight) ^ (ONES * u64::from(b'0'));
        if (eight | (eight.wrapping_add(ONES * 0x76))) & (ONES * 0x80) != 0 {
            break;
        }
        number = number.wrapping_mul(100_000_000).wrapping_add(value(eight));
        at += 8;
    }
    digits(bytes, at, number)
}

/// The number of eight digits, the first one lowest.
#[inline(always)]
fn value(digits: u64) -> u64 {
    let pairs = (digits * 10 + (digits >> 8)) & 0x00FF_00FF_00FF_00FF;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_FFFF_0000_FFFF;
    (fours * 10_000 + (fours >> 32)) & 0xFFFF_FFFF
}

/// Where the digits from `at` on end.
#[inline(always)]
pub fn digits_end(bytes: &[u8], at: usize) -> usize {
    let mut at = at;
    while let Some(b'0'..=b'9') = bytes.get(at) {
        at += 1;
    }
    at
}

/// A power of five whose highest bit is bit 63, and the numbers to multiply by in place of dividing by it.
#[derive(Clone, Copy)]
struct Divisor {
    divisor: u64,
    reciprocal: u64,
    /// By how many bits the power was shifted.
    shift: u32,
}

/// The powers of five that fit 64 bits.
const FIVES: [Divisor; 28] = {
    let mut all = [Divisor {
        divisor: 0,
        reciprocal: 0,
        shift: 0,
    }; 28];
    let mut power = 1u64;
    let mut place = 0;
    while place < all.len() {
        let shift = power.leading_zeros();
        let divisor = power << shift;
        all[place] = Divisor {
            divisor,
            reciprocal: (u128::MAX / divisor as u128 - (1 << 64)) as u64,
            shift,
        };
        power = power.wrapping_mul(5);
        place += 1;
    }
    all
};

/// The float that is nearest to `digits` times ten to the power of `tens`, the even one of two; `None` if that takes
/// more than is done here.
#[inline]
pub fn nearest(digits: u64, tens: i64) -> Option<f64> {
    if digits <= EXACT && (-22..=22).contains(&tens) {
        // Both are exact, so the one operation on them rounds as it should (Clinger).
        let ten = TENS[tens.unsigned_abs() as usize];
        let float = digits as f64;
        return Some(if tens < 0 { float / ten } else { float * ten });
    }
    if tens > 0 || digits == 0 {
        return None;
    }
    let five = FIVES.get(tens.unsigned_abs() as usize)?;
    Some(quotient(digits, tens, five))
}

/// `digits` times ten to the power of `tens`, by a division of integers whose remainder says how to round.
#[inline]
fn quotient(digits: u64, tens: i64, five: &Divisor) -> f64 {
    let shift = digits.leading_zeros();
    let dividend = u128::from(digits << shift) << 63;
    let (quotient, rest) = divided(dividend, five);
    // 62 or 63 bits behind the first, of which 52 stay.
    let spare = 11 - quotient.leading_zeros();
    let mut mantissa = quotient >> spare;
    let half = 1u64 << (spare - 1);
    let lost = quotient & (2 * half - 1);
    // Without a branch: which way a number goes cannot be foreseen.
    let up = (lost > half) | ((lost == half) & ((rest != 0) | (mantissa & 1 == 1)));
    mantissa += u64::from(up);
    let power = i64::from(spare) - 63 + i64::from(five.shift) - i64::from(shift) + tens;
    // Both are exact, and so is their product: no number of so many digits is near the smallest floats.
    mantissa as f64 * f64::from_bits(((power + 1023) as u64) << 52)
}

/// Quotient and remainder. The upper half of the dividend is less than the divisor. As in "Improved division by
/// invariant integers" (Möller and Granlund, 2011), algorithm 4.
#[inline]
fn divided(dividend: u128, by: &Divisor) -> (u64, u64) {
    let (upper, lower) = ((dividend >> 64) as u64, dividend as u64);
    let estimate = u128::from(by.reciprocal) * u128::from(upper) + dividend;
    let mut quotient = ((estimate >> 64) as u64).wrapping_add(1);
    let mut rest = lower.wrapping_sub(quotient.wrapping_mul(by.divisor));
    let over = u64::from(rest > estimate as u64);
    quotient = quotient.wrapping_sub(over);
    rest = rest.wrapping_add(by.divisor & over.wrapping_neg());
    if rest >= by.divisor {
        quotient = quotient.wrapping_add(1);
        rest -= by.divisor;
    }
    (quotient, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers without a pattern, always the same.
    fn random(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mixed = (*seed ^ (*seed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ (mixed >> 32)
    }

    #[test]
    fn digits_end_where_something_else_stands() {
        for end in (0..=255u8).filter(|byte| !byte.is_ascii_digit()) {
            for count in 0..=19 {
                let mut text: Vec<u8> = (0..count).map(|place| b'1' + place % 9).collect();
                let expected = std::str::from_utf8(&text).unwrap().parse().unwrap_or(0u64);
                assert_eq!(digits(&text, 0, 0), (text.len(), expected));
                text.extend([end, b'5', b'6', b'7', b'8', b'9', b'1', b'2', b'3', b'4']);
                assert_eq!(digits(&text, 0, 0), (usize::from(count), expected));
                assert_eq!(digits_end(&text, 0), usize::from(count));
            }
        }
        assert_eq!(digits(b"x", 5, 7), (5, 7));
    }

    #[test]
    fn the_nearest_float_is_the_one_that_the_standard_library_finds() {
        let mut seed = 1;
        for _ in 0..200_000 {
            let bits = random(&mut seed);
            let number = bits >> (random(&mut seed) % 64);
            let tens = (random(&mut seed) % 56) as i64 - 28;
            if let Some(float) = nearest(number, tens) {
                assert_eq!(float, format!("{number}e{tens}").parse::<f64>().unwrap());
            }
        }
        assert_eq!(nearest(u64::MAX, -28), None);
        assert_eq!(nearest(u64::MAX, 1), None);
    }

    #[test]
    fn numbers_half_way_between_two_floats_go_to_the_even_one() {
        // 2^53 + 1 and its like are half way; so are they divided by powers of five that they hold.
        for power in 0..28 {
            let five = 5u64.pow(power);
            for odd in (1..2000u64).step_by(2) {
                let half_way = (1 << 53) + odd;
                let Some(number) = half_way.checked_mul(five) else {
                    break;
                };
                for number in [number - 1, number, number + 1] {
                    let text = format!("{number}e-{power}");
                    assert_eq!(
                        nearest(number, -i64::from(power)),
                        text.parse::<f64>().ok(),
                        "{text}"
                    );
                }
            }
        }
    }
}
