/* py_export.c - kiln.Tensor -> other libraries, without copying: __dlpack__.
 *
 * What is handed out holds its own reference to the memory. */
#include <stdlib.h>
#include <string.h>

#include "kilnpy.h"

/* -- __dlpack__ ------------------------------------------------------------------------------------ */

static void capsule_drop(PyObject *capsule) {
    if (!PyCapsule_IsValid(capsule, "dltensor_versioned")) return; /* used: no longer ours */
    dl_managed *m = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    m->deleter(m);
}

static void old_capsule_drop(PyObject *capsule) {
    if (!PyCapsule_IsValid(capsule, "dltensor")) return;
    dl_managed_old *m = PyCapsule_GetPointer(capsule, "dltensor");
    m->deleter(m);
}

static void old_delete(dl_managed_old *m) {
    dl_managed *versioned = m->context;
    versioned->deleter(versioned);
    free(m);
}

static PyObject *old_capsule(dl_managed *stolen) {
    dl_managed_old *m = stolen->flags & DL_READ_ONLY ? NULL : malloc(sizeof *m);
    PyObject *capsule = NULL;
    if (m) {
        *m = (dl_managed_old){stolen->tensor, stolen, old_delete};
        capsule = PyCapsule_New(m, "dltensor", old_capsule_drop);
        if (!capsule) free(m);
    } else if (stolen->flags & DL_READ_ONLY) {
        PyErr_SetString(PyExc_BufferError, "a read-only tensor needs a consumer of DLPack 1.0 (max_version)");
    } else {
        PyErr_NoMemory();
    }
    if (!capsule) stolen->deleter(stolen);
    return capsule;
}

/* Two numbers in any sequence; what: what they are, for the exception. */
static int read_pair(PyObject *o, const char *what, int *first, int *second) {
    PyObject *pair = PySequence_Check(o) ? PySequence_Tuple(o) : NULL;
    bool read = pair && PyTuple_Size(pair) == 2 && PyArg_ParseTuple(pair, "ii", first, second);
    Py_XDECREF(pair);
    if (!read && !PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "%s, not %R", what, o);
    return read ? 0 : -1;
}

static int check_request(PyObject *stream, PyObject *device) {
    int type = DL_CPU, id = 0;
    if (device != Py_None && read_pair(device, "dl_device must be (type, id)", &type, &id) < 0) return -1;
    if (stream == Py_None && type == DL_CPU) return 0;
    PyErr_SetString(PyExc_BufferError,
                    "a kiln.Tensor is on the CPU: other devices and streams are not served");
    return -1;
}

PyObject *kp_dlpack(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
    void *managed;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream, &max_version, &device,
                                     &copy))
        return NULL;
    int major = 0, minor = 0, copied = PyObject_IsTrue(copy);
    if (max_version != Py_None &&
        read_pair(max_version, "max_version must be (major, minor)", &major, &minor) < 0)
        return NULL;
    if (copied < 0 || check_request(stream, device) < 0) return NULL;
    PyObject *source = copied ? kp_copy(self, NULL) : Py_NewRef(self);
    if (!source) return NULL;
    kiln_status status = kiln_tensor_to_dlpack(((kp_tensor *)source)->t, &managed);
    Py_DECREF(source);
    if (status != KILN_OK) return kp_raise(status), NULL;
    if (major < DL_MAJOR) return old_capsule(managed);
    PyObject *capsule = PyCapsule_New(managed, "dltensor_versioned", capsule_drop);
    if (!capsule) ((dl_managed *)managed)->deleter(managed);
    return capsule;
}
