//! Compiles the shim, where libfabric is wanted.

fn main() {
    println!("cargo:rerun-if-changed=src/shim.c");
    #[cfg(feature = "libfabric")]
    {
        cc::Build::new().file("src/shim.c").flag("-std=c11").compile("nearside_fabric");
        // the library is loaded when it is first wanted
        println!("cargo:rustc-link-lib=dl");
    }
}
