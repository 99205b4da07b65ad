// The functions of LMDB that the ordered store uses, found in liblmdb.so.0 at run time. The
// declarations are our own, of the interface of LMDB 0.9, so that a build needs no package.
#pragma once
#include <cstddef>
#include <string>

namespace pyrdma::erpc {

struct Lmdb {
  struct Environment;
  struct Transaction;
  struct Cursor;
  struct Value {  // MDB_val
    std::size_t bytes = 0;
    void* data = nullptr;
  };
  struct Statistics {  // MDB_stat
    unsigned page_bytes, depth;
    std::size_t branch_pages, leaf_pages, overflow_pages, entries;
  };
  using Database = unsigned;

  // The values of the header's constants.
  static constexpr unsigned kNoSync = 0x10000, kReadOnly = 0x20000, kNoTls = 0x200000;
  static constexpr unsigned kIntegerKey = 0x08;
  static constexpr int kNotFound = -30798, kMapFull = -30792, kReadersFull = -30790;
  static constexpr int kNext = 8, kSetRange = 17;  // of a cursor

#define PYRDMA_LMDB_FUNCTIONS(X)                                                            \
  X(version, char*, (int* major, int* minor, int* patch))                                   \
  X(strerror, char*, (int error))                                                           \
  X(env_create, int, (Environment * *env))                                                  \
  X(env_set_mapsize, int, (Environment * env, std::size_t bytes))                           \
  X(env_set_maxreaders, int, (Environment * env, unsigned readers))                         \
  X(env_open, int, (Environment * env, const char* folder, unsigned, unsigned mode))        \
  X(env_close, void, (Environment * env))                                                   \
  X(txn_begin, int, (Environment * env, Transaction * parent, unsigned, Transaction** txn)) \
  X(txn_commit, int, (Transaction * txn))                                                   \
  X(txn_abort, void, (Transaction * txn))                                                   \
  X(txn_reset, void, (Transaction * txn))                                                   \
  X(txn_renew, int, (Transaction * txn))                                                    \
  X(dbi_open, int, (Transaction * txn, const char* name, unsigned, Database* database))     \
  X(stat, int, (Transaction * txn, Database database, Statistics * found))                  \
  X(get, int, (Transaction * txn, Database database, Value * key, Value * value))           \
  X(put, int, (Transaction * txn, Database database, Value * key, Value * value, unsigned)) \
  X(del, int, (Transaction * txn, Database database, Value * key, Value * value))           \
  X(cursor_open, int, (Transaction * txn, Database database, Cursor * *cursor))             \
  X(cursor_close, void, (Cursor * cursor))                                                  \
  X(cursor_renew, int, (Transaction * txn, Cursor * cursor))                                \
  X(cursor_get, int, (Cursor * cursor, Value * key, Value * value, int))

#define PYRDMA_LMDB_MEMBER(name, result, arguments) result(*name) arguments = nullptr;
  PYRDMA_LMDB_FUNCTIONS(PYRDMA_LMDB_MEMBER)
#undef PYRDMA_LMDB_MEMBER

  static constexpr const char* kFile = "liblmdb.so.0";
  /// Finds the functions. Returns an empty text, or why they cannot be used, with the package to
  /// install. The library stays loaded. Cost: microseconds after the first time.
  std::string load(const char* file = kFile);
};

}  // namespace pyrdma::erpc
