//! Gives the shared library LevelDB's name for the loader, so that a program linked with LevelDB takes this one.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libleveldb.so.1");
}
