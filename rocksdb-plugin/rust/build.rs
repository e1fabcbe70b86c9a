//! Compiles the plugin's C++ against the headers of the RocksDB that librocksdb-sys links.

use std::path::PathBuf;

fn main() {
    for name in ["ROCKSDB_INCLUDE_DIR", "CXX", "CXXFLAGS"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("set by Cargo"));
    let plugin = root.parent().expect("rocksdb-plugin");
    let engineswap = plugin.parent().expect("the repository").join("crates/engineswap-c/include");
    // As librocksdb-sys does it: a library that is there has its headers there, else its own copy.
    let rocksdb = match std::env::var_os("ROCKSDB_INCLUDE_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => {
            let sys =
                std::env::var_os("DEP_ROCKSDB_CARGO_MANIFEST_DIR").expect("librocksdb-sys says where it is");
            PathBuf::from(sys).join("rocksdb/include")
        }
    };
    println!("cargo:rerun-if-changed={}", plugin.join("src").display());
    println!("cargo:rerun-if-changed={}", plugin.join("include").display());
    let sources = std::fs::read_dir(plugin.join("src")).expect("rocksdb-plugin/src").filter_map(|e| {
        let path = e.expect("an entry").path();
        // Registration at load is for the shared object.
        let other = path.extension().is_none_or(|x| x != "cc") || path.ends_with("preload.cc");
        (!other).then_some(path)
    });
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .files(sources)
        .include(engineswap)
        .include(plugin.join("include"))
        .include(rocksdb)
        .flag_if_supported("-fno-rtti")
        .warnings(false)
        .compile("engineswap_rocksdb_plugin");
}
