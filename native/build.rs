//! Gives the extension a checksum of its sources, so that one of other sources is told from one that fits.

use std::path::{Path, PathBuf};
use std::{fs, io};

fn main() {
    println!("cargo::rerun-if-changed=src");
    let mut paths = Vec::new();
    find(Path::new("src"), &mut paths).expect("the sources are there");
    let mut named: Vec<(String, PathBuf)> = paths
        .into_iter()
        .map(|path| (path.to_string_lossy().replace('\\', "/"), path))
        .collect();
    named.sort();
    let mut sum = !0;
    for (name, path) in named {
        sum = crc32(sum, name.as_bytes());
        sum = crc32(sum, &fs::read(path).expect("a source can be read"));
    }
    println!("cargo::rustc-env=STREAMER_SOURCES={:08x}", !sum);
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// As Python's `zlib.crc32` does it, bit by bit.
fn crc32(mut sum: u32, bytes: &[u8]) -> u32 {
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0xEDB8_8320 & (sum & 1).wrapping_neg());
        }
    }
    sum
}
