// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The contract of the FileSystem. Run with LD_PRELOAD=libengineswap_rocksdb.so; CONTRACT_DIR names a place on a disk.
#include <gtest/gtest.h>

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
