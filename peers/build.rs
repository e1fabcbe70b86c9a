//! The crate that carries RocksDB's source defines `RocksDbIOUringEnable`, always true, where an application is asked.
//! Ours is the application's, which is linked first, so that default settings are measured as they are by default.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-Wl,-z,muldefs");
}
